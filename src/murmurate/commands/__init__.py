"""The commands: `murmurate zone open` is `open.py`, its options and what it does. The table in `cli.py` names them.

What only an extra brings is imported in a block `with optional_imports()`, so `--help` works without it. A command
returns its exit status; none is 0. No command imports another one: what they share is in `operations`.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
