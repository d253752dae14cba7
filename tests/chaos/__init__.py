"""Two real services on one landing, all sources at once, and random faults: nothing is lost, doubled or wrong."""
