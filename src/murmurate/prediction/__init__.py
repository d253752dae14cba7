"""Predict the demand of the interval that pays, from a public forecast and the releases so far. No reading is used.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
