"""The words of public pages and of `murmurate plan`, by language.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
