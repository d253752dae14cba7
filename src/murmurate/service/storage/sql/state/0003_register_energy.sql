-- Energies of meters with a register of import and one of export, until both are there: the reading is their difference.
-- Register n is that of import of meter n, -1 - n that of export, here and in confidential.register. No CHECK: see
-- confidential.demand.
CREATE TABLE confidential.register_energy (
    register bigint,
    start_s bigint,
    wh bigint,
    PRIMARY KEY (register, start_s)
);
COMMENT ON TABLE confidential.register_energy IS 'Import and export of meters that feed in; deleted after keep_days.';
