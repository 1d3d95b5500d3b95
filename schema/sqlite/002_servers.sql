-- The same as on Cassandra, though a file has one server at a time: the tables are read and written by the same code.

-- Where timers stand is not kept: a slot of delayed tasks is a log like any other.
ALTER TABLE shard DROP COLUMN slot_cursor;

-- The servers that take part, each until its time is over.
CREATE TABLE node (
  node       TEXT NOT NULL PRIMARY KEY,
  beat       INTEGER NOT NULL,
  address    TEXT,
  secret     TEXT NOT NULL,
  holds      INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
