"""A world that murmurate's authors did not calibrate for it, by which the private price is judged."""
