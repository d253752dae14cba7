"""Experiments, attacks, figures and reports, on the code that the service runs.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
