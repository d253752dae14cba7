"""Check a public log from public data alone.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
