"""The doors out: everything here is made of the public log, and of nothing else."""
