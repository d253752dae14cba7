"""`python -m murmurate`."""

from murmurate.cli import main

if __name__ == "__main__":
    main()
