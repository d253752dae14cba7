"""docs/tutorial/first-hour.md, played as a newcomer would."""
