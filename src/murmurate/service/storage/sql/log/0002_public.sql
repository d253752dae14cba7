-- Whoever may connect may read. The role of the public API needs no more than that.
GRANT USAGE ON SCHEMA public_log TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA public_log TO PUBLIC;
REVOKE EXECUTE ON FUNCTION public_log.append(text) FROM PUBLIC;
