-- compatible with: 0005
-- The first and the last point of each register in the interval before that of its last point: points may come out of order.
ALTER TABLE confidential.register
    ADD COLUMN before_first_at_s bigint,
    ADD COLUMN before_first_wh bigint,
    ADD COLUMN before_at_s bigint,
    ADD COLUMN before_wh bigint;
