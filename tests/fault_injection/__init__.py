"""Fault injection on real processes: kills, failover, split brain, restores, lost acknowledgements, full disks."""
