"""A town that is made up, on a service that is real."""
