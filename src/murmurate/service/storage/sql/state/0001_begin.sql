-- What a curator keeps for itself.

CREATE SCHEMA confidential;
CREATE SCHEMA curator;

-- What the zones drew. No CHECK and no NOT NULL on it: PostgreSQL prints the whole row that it refuses, to the client
-- and into its log. A row with a NULL counts as no demand.
CREATE TABLE confidential.demand (
    zone text NOT NULL,
    interval bigint NOT NULL,
    energy_wh bigint,
    reported bigint,
    imputed bigint,
    PRIMARY KEY (zone, interval)
);

CREATE TABLE curator.plan (
    digest text PRIMARY KEY,
    document text NOT NULL
);

-- How far a zone has seen the public log; -1: nothing yet. This row is what a publisher locks.
CREATE TABLE curator.head (
    zone text PRIMARY KEY,
    seq bigint NOT NULL DEFAULT -1,
    opening jsonb
) WITH (fillfactor = 50);

-- A draw that may have been sent, and is in the log or can no longer get there once it is deleted.
CREATE TABLE curator.pending (
    zone text PRIMARY KEY,
    line text NOT NULL
);

-- The public log as this curator has seen it: a mirror in another failure domain.
CREATE TABLE curator.release (
    zone text NOT NULL,
    seq bigint NOT NULL,
    line text NOT NULL,
    PRIMARY KEY (zone, seq)
);
