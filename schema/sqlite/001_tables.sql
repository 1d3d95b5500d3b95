-- The tables of the embedded store. The same ones, with the same columns, hold a queue on Cassandra; what differs is
-- how a key is laid out on the disk. All are STRICT: a value of the wrong type is refused at the write, and
-- quick_check finds it later in a file that was damaged.

-- What is fixed when the store is created: segmentSize, shards, messageBuckets, slotMs.
CREATE TABLE meta (
  name  TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Entries. A log is (topic, tier), an entry its id; the segment follows from the id and needs no column.
--
-- A table with rowids and the key in an index beside it, not WITHOUT ROWID: inserts were faster (237,000 against
-- 213,000 a second, 200 a transaction), because the wide rows are then appended to the end of one tree whatever the
-- topic, and only the small index entries are spread.
--
-- The order of the columns: what conditions and heads read comes first, what may be large last, so that a row whose
-- payload reaches into overflow pages is judged from its first page alone.
--
-- origin and dest are places as text, `tier/id` in the row's own topic and `tier/id/topic` elsewhere: null in most
-- rows, and never searched for. payload is TEXT where it is JSON and BLOB where it is bytes.
CREATE TABLE task (
  topic          TEXT NOT NULL,
  tier           INTEGER NOT NULL,
  id             INTEGER NOT NULL,
  status         TEXT NOT NULL,
  version        INTEGER NOT NULL,
  uid            TEXT NOT NULL,
  lease_id       TEXT,
  worker         TEXT,
  leased_at      INTEGER,
  lease_until    INTEGER,
  updated_at     INTEGER NOT NULL,
  dest           TEXT,
  reason         TEXT,
  message_id     TEXT,
  priority       INTEGER NOT NULL,
  max_attempts   INTEGER,
  attempt        INTEGER NOT NULL,
  hops           INTEGER NOT NULL,
  enqueued_at    INTEGER NOT NULL,
  expires_at     INTEGER,
  due_at         INTEGER,
  target         TEXT,
  placed_at      INTEGER NOT NULL,
  origin         TEXT,
  origin_version INTEGER,
  supersedes     TEXT,
  task_id        TEXT,
  metadata       TEXT,
  progress       TEXT,
  history        TEXT,
  result         TEXT,
  payload        ANY NOT NULL,
  PRIMARY KEY (topic, tier, id)
) STRICT;

-- What a segment says of itself (static columns of `task` on Cassandra). Small rows that are looked up by their whole
-- key and rewritten in place: WITHOUT ROWID finds them in one tree instead of two. They are never deleted, so that a
-- late writer cannot take an old segment for a new one.
CREATE TABLE segment (
  topic     TEXT NOT NULL,
  tier      INTEGER NOT NULL,
  segment   INTEGER NOT NULL,
  next_id   INTEGER NOT NULL,
  bytes     INTEGER NOT NULL,
  scan      INTEGER NOT NULL,
  term      INTEGER NOT NULL,
  sealed_at INTEGER,
  closed    INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (topic, tier, segment)
) STRICT, WITHOUT ROWID;

-- Where to start reading a log. The topic comes first, because all tiers of a topic are read together.
CREATE TABLE checkpoint (
  topic      TEXT NOT NULL,
  tier       INTEGER NOT NULL,
  scan       INTEGER NOT NULL,
  completion INTEGER NOT NULL,
  trimmed    INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (topic, tier)
) STRICT, WITHOUT ROWID;

-- Which task owns a message id, or, for keys of uids, where a task that moved stands. No bucket in the key: it spreads
-- a topic's rows over partitions, and here there is one file.
CREATE TABLE message (
  topic       TEXT NOT NULL,
  key         TEXT NOT NULL,
  uid         TEXT NOT NULL,
  place       TEXT NOT NULL,
  hops        INTEGER NOT NULL,
  status      TEXT NOT NULL,
  enqueued_at INTEGER NOT NULL,
  settled_at  INTEGER,
  expires_at  INTEGER,
  PRIMARY KEY (topic, key)
) STRICT;

-- Finds what has outlived its time to live. Partial: rows of live tasks have no end and cost nothing here.
CREATE INDEX message_expiry ON message (expires_at) WHERE expires_at IS NOT NULL;

-- A topic's settings, as JSON text.
CREATE TABLE topic (
  topic    TEXT NOT NULL PRIMARY KEY,
  settings TEXT NOT NULL,
  version  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which logs had an enqueue in a period. The time comes before the topic, so that the newest rows are at the end and
-- a reader that follows them continues where it stopped; a period is one range and is dropped as one.
CREATE TABLE activity (
  shard  INTEGER NOT NULL,
  period INTEGER NOT NULL,
  at     INTEGER NOT NULL,
  topic  TEXT NOT NULL,
  tier   INTEGER NOT NULL,
  PRIMARY KEY (shard, period, at, topic, tier)
) STRICT, WITHOUT ROWID;

-- Who schedules a shard, and where its index and its timers stand.
CREATE TABLE shard (
  shard         INTEGER NOT NULL PRIMARY KEY,
  holder        TEXT,
  term          INTEGER NOT NULL,
  version       INTEGER NOT NULL,
  period        INTEGER NOT NULL,
  oldest_period INTEGER NOT NULL,
  slot_cursor   INTEGER NOT NULL
) STRICT;
