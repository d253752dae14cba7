-- The private process, at the state. It sees no demand and adds no client.
GRANT USAGE ON SCHEMA curator, confidential, access TO murmurate_private;
GRANT SELECT ON curator.heartbeat TO murmurate_private;
GRANT SELECT, INSERT, UPDATE ON curator.public_input TO murmurate_private;
GRANT SELECT ON access.client TO murmurate_private;
GRANT SELECT, INSERT, DELETE ON access.token TO murmurate_private;
GRANT SELECT, INSERT ON confidential.seen TO murmurate_private;
GRANT SELECT, INSERT, UPDATE ON confidential.register TO murmurate_private;
GRANT SELECT, INSERT ON confidential.register_energy TO murmurate_private;
