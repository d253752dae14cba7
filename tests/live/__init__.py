"""Real faults: publishers are killed, databases crash, fail over, split and are set back, acknowledgements get lost."""
