"""One law for the whole path: from a zone file, a meter table and readings to what a public log tells, exactly."""
