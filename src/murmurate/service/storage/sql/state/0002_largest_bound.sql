-- The largest bound among the protected meters in a demand: what the noise of its plan must hide. NULL: not known.
ALTER TABLE confidential.demand ADD COLUMN largest_bound_wh bigint;
