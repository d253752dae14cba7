-- What a role that may append can do without a signing key: nothing that lasts.

-- What was in the log and is not part of it: no reader accepts it. The owner moves it here with murmurate log repair.
CREATE TABLE public_log.evidence (
    kind text NOT NULL CHECK (kind IN ('tile', 'document', 'claim')),
    shard text, -- of a tile or a claim
    seq bigint, -- of a tile
    name text, -- the digest that a document was under, or the zone of a claim
    body bytea, -- of a tile or a document
    taken timestamptz, -- when the log took a tile
    set_aside timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE public_log.evidence ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON public_log.evidence
    FOR EACH STATEMENT EXECUTE FUNCTION public_log.refuse_change();
GRANT SELECT ON public_log.evidence TO PUBLIC;

-- A document is under its own digest. That of a plan is of the text without the member that names it. Documents under
-- another digest, which no reader accepts, are set aside: murmurate log repair publishes the right ones from the state.
ALTER TABLE public_log.document DISABLE TRIGGER append_only;
WITH wrong AS (
    DELETE FROM public_log.document
    WHERE digest <> encode(sha256(convert_to(replace(body, '"digest":"' || digest || '",', ''), 'UTF8')), 'hex')
    RETURNING digest, body
)
INSERT INTO public_log.evidence (kind, name, body) SELECT 'document', digest, convert_to(body, 'UTF8') FROM wrong;
ALTER TABLE public_log.document ENABLE TRIGGER append_only;
ALTER TABLE public_log.document
    ADD CONSTRAINT is_digest CHECK (
        digest = encode(sha256(convert_to(replace(body, '"digest":"' || digest || '",', ''), 'UTF8')), 'hex')),
    ADD CONSTRAINT is_small CHECK (octet_length(body) <= 16777216) NOT VALID;

-- The same function as before, but for a shard that is not open: nothing that a refused tile has left in its head is
-- compared with the tile that opens it.
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
            AND (o.kind = 'open') = (h.seq = -1)
            AND (h.seq = -1 OR (o.key = h.key AND o.interval_s = h.interval_s AND o.lead = h.lead))
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
            interval = o.interval, interval_s = o.interval_s, lead = o.lead
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
