-- Huber noise, and its core, which is 0 in every other record. All else is as before.

-- Take each line that follows the head of its zone (compare and swap); answer with the zones whose line was taken. A
-- zone that another is appending to is passed over: nobody waits. The rules are those of public_log/chain.py, but for
-- the signature, which every reader checks. One more: an interval must be over by this server's own clock. `offered` is
-- one line for each of some zones.
CREATE OR REPLACE FUNCTION public_log.append(offered text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    IF strpos(offered, '"kind":"open"') > 0 THEN
        INSERT INTO public_log.head
        SELECT r.zone, -1, repeat('0', 64), r.key, r.plan, r.interval, r.interval_s, r.applies - r.interval, 0, 0
        FROM string_to_table(offered, E'\n') AS line
        CROSS JOIN LATERAL jsonb_to_record(line::jsonb) AS r(
            kind text, zone text, key text, plan text, interval bigint, interval_s bigint, applies bigint)
        WHERE r.kind = 'open'
        ON CONFLICT (zone) DO NOTHING;
    END IF;

    -- The lock looks at the newest version of a head, and so does the comparison.
    RETURN QUERY
    WITH offer AS MATERIALIZED (
        SELECT line, r.*
        FROM string_to_table(offered, E'\n') AS line
        CROSS JOIN LATERAL jsonb_to_record(line::jsonb) AS r(
            murmurate bigint, zone text, seq bigint, prev text, kind text, key text, next_key text, plan text,
            noise text, core_wh bigint, interval bigint, interval_s bigint, applies bigint, epsilon_micro bigint,
            rho_micro bigint, total_epsilon_micro bigint, total_rho_micro bigint)
    ), fitting AS MATERIALIZED (
        SELECT o.*
        FROM offer AS o
        JOIN public_log.head AS h ON h.zone = o.zone
        WHERE o.murmurate = 1
            AND o.seq = h.seq + 1
            AND o.prev = h.hash
            AND o.noise IN ('none', 'laplace', 'huber', 'gaussian')
            AND (o.core_wh = 0 OR (o.core_wh > 0 AND o.noise = 'huber'))
            AND o.epsilon_micro >= 0
            AND o.rho_micro >= 0
            AND o.total_epsilon_micro = h.total_epsilon_micro + o.epsilon_micro
            AND o.total_rho_micro = h.total_rho_micro + o.rho_micro
            AND CASE
                WHEN o.kind = 'open' THEN h.seq = -1
                ELSE h.seq >= 0 AND o.key = h.key AND o.interval_s = h.interval_s AND o.applies = o.interval + h.lead
            END
            AND CASE
                WHEN o.kind IN ('open', 'plan') THEN EXISTS (SELECT FROM public_log.plan AS p WHERE p.digest = o.plan)
                ELSE o.plan = h.plan
            END
            AND CASE
                WHEN o.kind IN ('measured', 'forecast', 'withheld') THEN o.interval = h.interval + 1
                    AND (o.interval + 1) * o.interval_s <= extract(epoch FROM clock_timestamp())
                WHEN o.kind IN ('plan', 'key') THEN o.interval = h.interval
                ELSE o.kind = 'open'
            END
        FOR UPDATE OF h SKIP LOCKED
    ), moved AS (
        UPDATE public_log.head AS h
        SET seq = o.seq, hash = encode(sha256(convert_to(o.line, 'UTF8')), 'hex'), key = coalesce(o.next_key, o.key),
            plan = o.plan, interval = o.interval, interval_s = o.interval_s, lead = o.applies - o.interval,
            total_epsilon_micro = o.total_epsilon_micro, total_rho_micro = o.total_rho_micro
        FROM fitting AS o
        WHERE h.zone = o.zone
    )
    INSERT INTO public_log.entry AS e (zone, seq, line)
    SELECT o.zone, o.seq, o.line FROM fitting AS o
    RETURNING e.zone;
END $$;
