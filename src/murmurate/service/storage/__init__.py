"""Everything that talks to PostgreSQL or must survive a power cut."""
