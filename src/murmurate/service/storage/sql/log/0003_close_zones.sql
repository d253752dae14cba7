-- A zone can be closed: a later zone table has it among `closed`, and never again among `zones`.

-- Whether a zone table may be in force next: it is in the log, with the plan of each open zone; each of those is claimed
-- for this shard; a zone of the table before is in it, open or closed, and one that was closed is there as it was; a zone
-- that is closed now was open until the last interval that was decided. A shard without an open zone has ended. Readers
-- also check what a closed zone has spent. A shard begins with open zones alone; until then its head has the number -1.
CREATE OR REPLACE FUNCTION public_log.zones_may_enter(its_shard text, digest text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH before AS MATERIALIZED (
        SELECT h.interval, d.body::jsonb -> 'zones' AS zones, coalesce(d.body::jsonb -> 'closed', '[]') AS closed
        FROM public_log.head AS h JOIN public_log.document AS d ON d.digest = h.zones
        WHERE h.shard = its_shard AND h.seq >= 0
    ), after AS MATERIALIZED (
        SELECT d.body::jsonb -> 'zones' AS zones, coalesce(d.body::jsonb -> 'closed', '[]') AS closed
        FROM public_log.document AS d WHERE d.digest = $2
    ), opened AS MATERIALIZED (
        SELECT z.zone, z.plan FROM after, jsonb_to_recordset(after.zones) AS z (zone text, plan text)
    ), closed AS MATERIALIZED (
        SELECT c AS entry, c ->> 'zone' AS zone FROM after, jsonb_array_elements(after.closed) AS c
    ), opened_before AS MATERIALIZED (
        SELECT z.zone FROM before, jsonb_to_recordset(before.zones) AS z (zone text)
    ), closed_before AS MATERIALIZED (
        SELECT c AS entry FROM before, jsonb_array_elements(before.closed) AS c
    )
    SELECT CASE
            WHEN EXISTS (SELECT FROM before) THEN EXISTS (SELECT FROM after) AND EXISTS (SELECT FROM opened_before)
            ELSE EXISTS (SELECT FROM opened) AND NOT EXISTS (SELECT FROM closed)
        END
        AND NOT EXISTS (
            SELECT FROM opened AS o
            WHERE NOT EXISTS (SELECT FROM public_log.document AS p WHERE p.digest = o.plan)
                OR NOT EXISTS (SELECT FROM public_log.claim AS c WHERE c.zone = o.zone AND c.shard = its_shard))
        AND NOT EXISTS (SELECT FROM opened JOIN closed USING (zone))
        AND NOT EXISTS (SELECT zone FROM opened_before EXCEPT (SELECT zone FROM opened UNION SELECT zone FROM closed))
        AND NOT EXISTS (SELECT entry FROM closed_before EXCEPT SELECT entry FROM closed)
        AND NOT EXISTS (
            SELECT FROM closed AS c, before
            WHERE NOT EXISTS (SELECT FROM closed_before AS b WHERE b.entry = c.entry)
                AND ((c.entry ->> 'last')::bigint IS DISTINCT FROM before.interval
                    OR NOT EXISTS (SELECT FROM opened_before AS b WHERE b.zone = c.zone)))
$$;
