"""Adversaries, and lower bounds on epsilon from samples.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
