"""For whoever runs the service: a page and figures. Never a demand."""
