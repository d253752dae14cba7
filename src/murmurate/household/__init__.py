"""Household models: occupancy and consumption.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
