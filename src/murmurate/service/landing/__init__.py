"""Readings on disk (the landing area): layout, append, meter table, manifests of closed intervals."""
