-- What a publisher keeps for itself.

CREATE SCHEMA confidential;
CREATE SCHEMA curator;
CREATE SCHEMA access;

-- The demand of each zone. No CHECK and no NOT NULL on it: PostgreSQL prints the whole row that it refuses, to the client
-- and into its log. A row with a NULL counts as no demand. `bounds` is the largest bound of a household by kind, as a JSON
-- object: what the noise of its plan must hide. NULL or not readable: not known, and then the demand is not released.
CREATE TABLE confidential.demand (
    interval bigint NOT NULL,
    zone text NOT NULL,
    energy_wh bigint,
    reported bigint,
    imputed bigint,
    bounds text,
    PRIMARY KEY (interval, zone)
);

-- Plans and zone tables, by their SHA-256.
CREATE TABLE curator.document (
    digest text PRIMARY KEY,
    body text NOT NULL
);

-- How far the public log of a shard was seen; -1: nothing yet. This row is what a publisher locks.
CREATE TABLE curator.shard (
    shard text PRIMARY KEY,
    seq bigint NOT NULL DEFAULT -1,
    opening jsonb NOT NULL
) WITH (fillfactor = 50);

-- Zones that should be in a shard, and how they enter it.
CREATE TABLE curator.zone (
    zone text PRIMARY KEY,
    shard text NOT NULL REFERENCES curator.shard,
    opening jsonb NOT NULL
);
CREATE INDEX zone_shard ON curator.zone (shard);

-- Tiles of the log as they were seen: a mirror in another failure domain. A tile that was not seen in the log yet may have
-- been sent: it is in the log, or can no longer get there, once it is deleted.
CREATE TABLE curator.tile (
    shard text NOT NULL,
    seq bigint NOT NULL,
    releases boolean NOT NULL, -- whether it has rows
    seen boolean NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (shard, seq)
);
ALTER TABLE curator.tile ALTER COLUMN body SET STORAGE EXTERNAL;

-- The last report of each process of the service.
CREATE TABLE curator.heartbeat (
    process text PRIMARY KEY,
    at timestamptz NOT NULL,
    report jsonb NOT NULL
);

-- How often the aggregation of an interval was begun and not finished: by readings that end the worker each time.
CREATE TABLE curator.aggregation_attempt (
    interval_s bigint NOT NULL,
    interval bigint NOT NULL,
    attempts bigint NOT NULL,
    PRIMARY KEY (interval_s, interval)
);

-- Clients that may send readings. Secrets and tokens are random; their SHA-256 is enough to recognise them, and useless
-- to whoever steals it.
CREATE TABLE access.client (
    id text PRIMARY KEY,
    secret bytea NOT NULL,
    zones text[] NOT NULL, -- whose meters it may send readings for
    operator boolean NOT NULL DEFAULT false -- may see the operator's page
);

CREATE TABLE access.token (
    digest bytea PRIMARY KEY,
    client text NOT NULL REFERENCES access.client ON DELETE CASCADE,
    zones text[] NOT NULL,
    expires timestamptz NOT NULL
);

-- Tokens are found by when they expire, to delete them in small pieces, and by client, of which each has a bounded number.
CREATE INDEX token_expires ON access.token (expires);
CREATE INDEX token_client ON access.token (client, expires);

-- Signed readings that were taken: each is taken once.
CREATE TABLE confidential.seen (
    meter bigint NOT NULL,
    start_s bigint NOT NULL,
    PRIMARY KEY (meter, start_s)
);

-- The first and the last point of each meter's register in the current interval. No CHECK: see confidential.demand.
CREATE TABLE confidential.register (
    meter bigint PRIMARY KEY,
    at_s bigint,
    wh bigint,
    first_at_s bigint,
    first_wh bigint
);

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
