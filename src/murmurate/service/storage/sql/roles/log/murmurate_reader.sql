-- The public and the private process, at the log. Every role that may connect can read it.
GRANT USAGE ON SCHEMA public_log TO murmurate_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA public_log TO murmurate_reader;
