-- The worker, at the log. Tiles and claims are added by functions that check them.
GRANT USAGE ON SCHEMA public_log TO murmurate_publisher;
GRANT SELECT ON ALL TABLES IN SCHEMA public_log TO murmurate_publisher;
GRANT INSERT ON public_log.document TO murmurate_publisher;
GRANT EXECUTE ON FUNCTION public_log.append(bytea[]), public_log.claim_zones(jsonb) TO murmurate_publisher;
