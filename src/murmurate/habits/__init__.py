"""Learn occupancy models from a consented sample, under differential privacy for each of its households.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
