-- Sums of the bounds of meters that did not report and have no imputed value: the release adds a public share of them. As
-- confidential as the demand, and without CHECK or NOT NULL, as that is. Earlier rows have none.
ALTER TABLE confidential.demand
    ADD COLUMN silent_bound_wh bigint DEFAULT 0,
    ADD COLUMN silent_export_bound_wh bigint DEFAULT 0;
