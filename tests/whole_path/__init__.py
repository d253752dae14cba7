"""One property of the whole path, from zone file, meter table and readings to the public log: every promise is kept."""
