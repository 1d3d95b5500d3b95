-- API keys. What a key's holder shows is not kept, only its SHA-256: it is 256 random bits, which no guessing finds, however
-- fast the hash.
CREATE TABLE api_key (
  id              TEXT NOT NULL PRIMARY KEY,
  hash            TEXT NOT NULL,
  seal            TEXT NOT NULL,
  name            TEXT NOT NULL,
  description     TEXT,
  roles           TEXT NOT NULL,
  prefixes        TEXT,
  rate_per_second INTEGER,
  rate_burst      INTEGER,
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER,
  revoked_at      INTEGER
) STRICT, WITHOUT ROWID;

-- How often keys were changed: the condition of each change, and how a server learns that there was one.
CREATE TABLE api_key_version (
  part    INTEGER NOT NULL PRIMARY KEY CHECK (part = 0),
  version INTEGER NOT NULL
) STRICT;
INSERT INTO api_key_version (part, version) VALUES (0, 0);
