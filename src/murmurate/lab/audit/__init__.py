"""Attacks on a plan, and what they may find."""
