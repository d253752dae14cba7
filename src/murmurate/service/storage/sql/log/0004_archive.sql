-- Old tiles leave the log after they were written to files and read back: `murmurate log archive`. Only the owner can do it.

-- How far the releases of a shard are in the archive alone. Tiles without rows (open, zones, key) stay in the log: with
-- them a reader follows the keys from the first tile to the first release that is still here.
CREATE TABLE public_log.archived (
    shard text PRIMARY KEY,
    seq bigint NOT NULL, -- of the last tile before the first release that is still here
    hash text NOT NULL, -- of that tile: the first release names it as the one before
    interval bigint NOT NULL, -- the last one that was archived
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
GRANT SELECT ON public_log.archived TO PUBLIC;

-- A tile is deleted only where `archived` says so. This prevents mistakes. It does not stop a superuser.
CREATE FUNCTION public_log.refuse_kept() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' OR NOT EXISTS (
        SELECT FROM public_log.archived AS a WHERE a.shard = OLD.shard AND a.seq >= OLD.seq
    ) THEN
        RAISE EXCEPTION 'the public log is append-only';
    END IF;
    RETURN OLD;
END $$;

DROP TRIGGER append_only ON public_log.tile;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON public_log.tile
    FOR EACH ROW EXECUTE FUNCTION public_log.refuse_kept();
CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON public_log.tile
    FOR EACH STATEMENT EXECUTE FUNCTION public_log.refuse_change();

-- Note that the tiles of a shard up to a number are in the archive, and delete those that have rows. Answers with how many
-- were deleted. That tile must be in the log with this hash, and a release must follow it.
CREATE FUNCTION public_log.drop_archived(its_shard text, its_seq bigint, its_hash text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    last record;
    dropped bigint;
BEGIN
    SELECT o.interval, encode(sha256(o.header), 'hex') AS hash INTO last
    FROM public_log.tile AS t CROSS JOIN LATERAL public_log.parse_headers(ARRAY[t.body]) AS o
    WHERE t.shard = its_shard AND t.seq = its_seq;
    IF last.hash IS DISTINCT FROM its_hash THEN
        RAISE EXCEPTION 'the archive holds another tile than the log';
    END IF;
    IF NOT EXISTS (
        SELECT FROM public_log.tile AS t CROSS JOIN LATERAL public_log.parse_headers(ARRAY[t.body]) AS o
        WHERE t.shard = its_shard AND t.seq = its_seq + 1 AND o.kind = 'release' AND o.prev = its_hash
    ) THEN
        RAISE EXCEPTION 'no release follows the archived tiles';
    END IF;

    INSERT INTO public_log.archived AS a (shard, seq, hash, interval)
    VALUES (its_shard, its_seq, its_hash, last.interval)
    ON CONFLICT (shard) DO UPDATE
    SET seq = excluded.seq, hash = excluded.hash, interval = excluded.interval, at = excluded.at;

    DELETE FROM public_log.tile AS t
    WHERE t.shard = its_shard AND t.seq <= its_seq
        AND (SELECT o.kind FROM public_log.parse_headers(ARRAY[t.body]) AS o) = 'release';
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;
REVOKE EXECUTE ON FUNCTION public_log.refuse_kept(), public_log.drop_archived(text, bigint, text) FROM PUBLIC;
