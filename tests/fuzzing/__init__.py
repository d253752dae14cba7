"""Coverage-guided fuzzing of every parser that reads what others wrote."""
