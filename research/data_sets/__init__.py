"""Readers of public data sets of household readings. Each gives `HomesData`; no data set is part of this package."""
