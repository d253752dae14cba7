"""A deterministic simulator that drives the real publisher through faults: one seed, one run."""
