"""The laboratory: the same road as the service, with seeds, towns to try it on, and figures."""
