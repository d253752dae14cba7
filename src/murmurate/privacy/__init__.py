"""Privacy accounting, calibration and noise. Proofs are files next to the code.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
