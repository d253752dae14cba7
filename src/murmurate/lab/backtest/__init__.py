"""A back-test: what each household of a zone would have paid under a plan, computed from readings of the past.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
