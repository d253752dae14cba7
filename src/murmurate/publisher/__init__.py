"""The publishing protocol: desired state, record writer, and the steps that make a record public exactly once.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
