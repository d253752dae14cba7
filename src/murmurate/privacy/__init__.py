"""Privacy accounting, calibration and noise. A proof stands beside the code.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
