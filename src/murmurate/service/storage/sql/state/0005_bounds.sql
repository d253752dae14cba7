-- The largest bound of a household in a demand, by kind, as a JSON object: what the noise of its plan must hide. NULL or
-- not readable: not known, and then the demand is not released. No CHECK: see 0001.
ALTER TABLE confidential.demand DROP COLUMN largest_bound_wh;
ALTER TABLE confidential.demand ADD COLUMN bounds text;
