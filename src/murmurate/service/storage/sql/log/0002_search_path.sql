-- Names in our functions are looked up in the catalog alone: an operator or a function that another role has created in
-- schema public is never called. The functions that write run with the rights of their owner, so that a publisher needs
-- the right to call them and no right to the tables. They use no temporary table: the caller could create it first.

ALTER FUNCTION public_log.refuse_change() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION public_log.zones_may_enter(text, text, bigint) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION public_log.claim_zones(jsonb) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;

-- The members of each header, beside header and tile. Bytes that are no tile of this version are left out.
CREATE FUNCTION public_log.parse_headers(bodies bytea[]) RETURNS TABLE (
    body bytea, header bytea, shard text, seq bigint, prev text, kind text, key text, next_key text, zones text,
    "interval" bigint, interval_s bigint, lead bigint)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT o.body, o.header, h.shard, h.seq, h.prev, h.kind, h.key, h.next_key, h."table", h.interval, h.interval_s,
        h.lead
    FROM (SELECT b AS body, substring(b FROM 1 FOR position('\x0a'::bytea IN b) - 1) AS header FROM unnest(bodies) AS b)
        AS o
    CROSS JOIN LATERAL jsonb_to_record(convert_from(o.header, 'UTF8')::jsonb) AS h (
        murmurate bigint, shard text, seq bigint, prev text, kind text, key text, next_key text, "table" text,
        interval bigint, interval_s bigint, lead bigint)
    WHERE h.murmurate = 1
$$;

-- See 0001_begin.sql.
CREATE OR REPLACE FUNCTION public_log.append(bodies bytea[]) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO public_log.head
    SELECT o.shard, -1, repeat('0', 64), o.key, o.zones, o.interval, o.interval_s, o.lead
    FROM public_log.parse_headers(bodies) AS o WHERE o.kind = 'open' AND o.seq = 0
    ON CONFLICT DO NOTHING;

    -- The lock looks at the newest version of a head, and so does the comparison.
    RETURN QUERY
    WITH offered AS MATERIALIZED (
        SELECT * FROM public_log.parse_headers(bodies)
    ), fitting AS MATERIALIZED (
        SELECT o.*
        FROM offered AS o
        JOIN public_log.head AS h ON h.shard = o.shard
        WHERE o.seq = h.seq + 1
            AND o.prev = h.hash
            AND o.key = h.key
            AND o.interval_s = h.interval_s
            AND o.lead = h.lead
            AND (o.kind = 'open') = (h.seq = -1)
            AND CASE o.kind
                WHEN 'release' THEN o.interval = h.interval + 1
                    AND (o.interval + 1) * o.interval_s <= extract(epoch FROM clock_timestamp())
                WHEN 'open' THEN true
                ELSE o.kind IN ('zones', 'key') AND o.interval = h.interval
            END
            AND CASE
                WHEN o.kind IN ('open', 'zones') THEN public_log.zones_may_enter(o.shard, o.zones, o.interval + 1)
                ELSE o.zones = h.zones
            END
        FOR UPDATE OF h SKIP LOCKED
    ), moved AS (
        UPDATE public_log.head AS h
        SET seq = o.seq, hash = encode(sha256(o.header), 'hex'), key = coalesce(o.next_key, o.key), zones = o.zones,
            interval = o.interval
        FROM fitting AS o
        WHERE h.shard = o.shard
    ), told AS (
        SELECT pg_notify('murmurate_tile', o.shard) FROM fitting AS o
    )
    INSERT INTO public_log.tile AS t (shard, seq, interval, body)
    SELECT o.shard, o.seq, o.interval, o.body FROM fitting AS o
    WHERE (SELECT count(*) FROM told) >= 0
    RETURNING t.shard;
END $$;

-- A trigger and the functions above call the others: no other role has to.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public_log FROM PUBLIC;

-- No other role creates anything in this database, as far as this role may say so.
DO $$
BEGIN
    IF (SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'public') THEN
        REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    END IF;
    IF (SELECT pg_has_role(datdba, 'USAGE') FROM pg_database WHERE datname = current_database()) THEN
        EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    END IF;
END $$;
