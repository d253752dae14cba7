-- The worker, at the state. It opens no zone and sees no client.
GRANT USAGE ON SCHEMA curator, confidential TO murmurate_worker;
GRANT SELECT, INSERT ON curator.document TO murmurate_worker;
GRANT SELECT, UPDATE (seq) ON curator.shard TO murmurate_worker;
GRANT SELECT, DELETE ON curator.public_input TO murmurate_worker;
GRANT SELECT ON curator.zone TO murmurate_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON curator.tile TO murmurate_worker;
GRANT SELECT, INSERT, UPDATE ON curator.heartbeat TO murmurate_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON curator.aggregation_attempt TO murmurate_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON confidential.demand TO murmurate_worker;
GRANT SELECT, DELETE ON confidential.seen TO murmurate_worker;
GRANT SELECT (at_s), DELETE ON confidential.register TO murmurate_worker;
GRANT SELECT (start_s), DELETE ON confidential.register_energy TO murmurate_worker;
