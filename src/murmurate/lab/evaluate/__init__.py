"""What a price is worth: simulated regions, ways to price them, and the page that compares them.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
