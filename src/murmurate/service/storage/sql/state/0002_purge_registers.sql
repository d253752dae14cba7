-- The worker deletes registers that had no point for keep_days. Its role gets the right with this file: rights are granted
-- again after each migration.
COMMENT ON TABLE confidential.register IS 'First and last point of each register; deleted keep_days after the last one.';
