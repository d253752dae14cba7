"""What all HTTP APIs and pages share."""
