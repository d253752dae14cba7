"""The bodies of the commands: the body of `murmurate X` is `commands/X.py`.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
