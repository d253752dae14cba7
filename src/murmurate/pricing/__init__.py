"""What electricity costs: from demand to price, exactly."""
