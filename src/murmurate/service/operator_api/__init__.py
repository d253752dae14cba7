"""The operator's page, status and metrics. Never a demand."""
