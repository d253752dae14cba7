"""The service: PostgreSQL, clock and files around the publisher."""
