-- The public log. Everything in it may be read by anybody, for ever.
--
-- Names in the functions are looked up in the catalog alone: an operator or a function that another role has created in
-- schema public is never called. The functions that write run with the rights of their owner, so that a publisher needs
-- the right to call them and no right to the tables. They use no temporary table: the caller could create it first.

CREATE SCHEMA public_log;

-- Plans and zone tables, by their SHA-256.
CREATE TABLE public_log.document (
    digest text PRIMARY KEY,
    body text NOT NULL
);

-- The shard that a zone is in, for ever. The key is the compare-and-swap: no second shard can release the zone.
CREATE TABLE public_log.claim (
    zone text PRIMARY KEY,
    shard text NOT NULL
);

-- Tiles. The key is the compare-and-swap: a number of a shard is created once.
CREATE TABLE public_log.tile (
    shard text NOT NULL,
    seq bigint NOT NULL,
    interval bigint NOT NULL,
    taken timestamptz NOT NULL DEFAULT clock_timestamp(),
    body bytea NOT NULL,
    PRIMARY KEY (shard, seq)
);
ALTER TABLE public_log.tile ALTER COLUMN body SET STORAGE EXTERNAL; -- a part of a tile is read without the rest
CREATE INDEX tile_interval ON public_log.tile (shard, interval);

-- What the last tile of each shard says, so that the next one can be compared with it.
CREATE TABLE public_log.head (
    shard text PRIMARY KEY,
    seq bigint NOT NULL,
    hash text NOT NULL,
    key text NOT NULL,
    zones text NOT NULL, -- digest of the zone table
    interval bigint NOT NULL,
    interval_s bigint NOT NULL,
    lead bigint NOT NULL
) WITH (fillfactor = 50);

-- Tiles are added by public_log.append, claims by public_log.claim_zones. Nothing here is ever changed. This prevents
-- mistakes. It does not stop a superuser.
CREATE FUNCTION public_log.refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the public log is append-only';
END $$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON public_log.tile
    FOR EACH STATEMENT EXECUTE FUNCTION public_log.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON public_log.claim
    FOR EACH STATEMENT EXECUTE FUNCTION public_log.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON public_log.document
    FOR EACH STATEMENT EXECUTE FUNCTION public_log.refuse_change();

-- Give each zone to a shard, unless a shard has it already; return the shard of each zone.
CREATE FUNCTION public_log.claim_zones(wanted jsonb) RETURNS TABLE (zone text, shard text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO public_log.claim (zone, shard)
    SELECT w.key, w.value FROM jsonb_each_text(wanted) AS w
    ORDER BY w.key -- everybody in one order: two publishers never wait for each other
    ON CONFLICT DO NOTHING;

    RETURN QUERY
    SELECT c.zone, c.shard FROM public_log.claim AS c WHERE c.zone IN (SELECT jsonb_object_keys(wanted));
END $$;

-- Whether a zone table is in the log, with the plan of each zone, and each zone is claimed for this shard.
CREATE FUNCTION public_log.zones_may_enter(its_shard text, digest text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((
        SELECT bool_and(
            EXISTS (SELECT FROM public_log.document AS p WHERE p.digest = z.plan)
            AND EXISTS (SELECT FROM public_log.claim AS c WHERE c.zone = z.zone AND c.shard = its_shard))
        FROM public_log.document AS d
        CROSS JOIN LATERAL jsonb_to_recordset(d.body::jsonb -> 'zones') AS z (zone text, plan text)
        WHERE d.digest = $2
    ), false)
$$;

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

-- Take each tile that follows the head of its shard; answer with the shards whose tile was taken. A shard that another is
-- appending to is passed over: nobody waits. The rules are those of public_log/tile_chain.py, but for the signature and
-- the rows, which every reader checks. Two more: an interval must be over by this server's own clock, and a zone may
-- be only in the shard that has claimed it. `bodies` has one tile for each of some shards.
CREATE FUNCTION public_log.append(bodies bytea[]) RETURNS SETOF text
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
                WHEN o.kind IN ('open', 'zones') THEN public_log.zones_may_enter(o.shard, o.zones)
                ELSE o.zones = h.zones
            END
        FOR UPDATE OF h SKIP LOCKED
    ), advanced AS (
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

-- Whoever may connect may read. The role of the public API needs no more than that. Only a publisher calls functions, and
-- is given the right to those two that write.
GRANT USAGE ON SCHEMA public_log TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA public_log TO PUBLIC;
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
