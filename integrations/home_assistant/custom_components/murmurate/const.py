"""Names that the parts of the integration share."""

DOMAIN = "murmurate"
