"""From demand to price, exactly, and the public forecast.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
