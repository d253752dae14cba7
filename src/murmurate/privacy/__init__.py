"""Who needs protection, how much noise that takes, and the noise itself. A proof stands beside the code."""
