-- The energy of an interval comes from the points within it: the first one is kept beside the last one. A register that
-- is already known begins again at its last point. No CHECK: see 0001.
ALTER TABLE confidential.register ADD COLUMN first_at_s bigint, ADD COLUMN first_wh bigint;
UPDATE confidential.register SET first_at_s = at_s, first_wh = wh;
ALTER TABLE confidential.register DROP COLUMN boundary_wh;
