"""Programs that measure what a page publishes. Each prints its figures and ends with 1 where a goal is missed."""
