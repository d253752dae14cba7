"""Publication: one signed, chained record for each zone and interval, and the steps by which it becomes public once."""
