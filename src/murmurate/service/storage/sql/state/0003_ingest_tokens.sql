-- Tokens are found by when they expire, to delete them in small pieces, and by client, of which each has a bounded number.
CREATE INDEX token_expires ON access.token (expires);
CREATE INDEX token_client ON access.token (client, expires);
