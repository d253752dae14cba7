-- Clients that may send readings, their tokens, and the state of their meters.

CREATE SCHEMA access;

-- Secrets and tokens are random; their SHA-256 is enough to know them again, and useless to whoever steals it.
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

-- Signed readings that were taken: each is taken once.
CREATE TABLE confidential.seen (
    meter bigint NOT NULL,
    start_s bigint NOT NULL,
    PRIMARY KEY (meter, start_s)
);

-- Where the register of each meter stood last, and at the last interval boundary. No CHECK: see 0001.
CREATE TABLE confidential.register (
    meter bigint PRIMARY KEY,
    at_s bigint,
    wh bigint,
    boundary_wh bigint
);

-- The last report of each process of the service.
CREATE TABLE curator.heartbeat (
    process text PRIMARY KEY,
    at timestamptz NOT NULL,
    report jsonb NOT NULL
);
