"""The doors in: readings from files, head-ends and brokers, checked and left in the landing."""
