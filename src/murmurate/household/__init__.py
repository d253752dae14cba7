"""What a household does: whether somebody is home, and what is then consumed."""
