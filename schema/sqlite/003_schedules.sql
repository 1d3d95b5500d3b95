-- Schedules: who puts a task into which topic at which times, and how far each has come. Shard by shard, as on Cassandra:
-- the holder of a shard reads its own and no others, and a name says which shard it is in.
--
-- A table with rowids and the payload last, as `task`: a holder that starts reads what comes before it.
CREATE TABLE schedule (
  shard          INTEGER NOT NULL,
  name           TEXT NOT NULL,
  incarnation    TEXT NOT NULL,
  version        INTEGER NOT NULL,
  topic          TEXT NOT NULL,
  pattern        TEXT NOT NULL,
  time_zone      TEXT NOT NULL,
  priority       INTEGER,
  ttl_ms         INTEGER,
  max_attempts   INTEGER,
  catch_up_ms    INTEGER NOT NULL,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  fired_up_to    INTEGER NOT NULL,
  next_at        INTEGER,
  last_fired_for INTEGER,
  last_task      TEXT,
  fired          INTEGER NOT NULL,
  missed         INTEGER NOT NULL,
  refusal        TEXT,
  metadata       TEXT,
  payload        ANY NOT NULL,
  PRIMARY KEY (shard, name)
) STRICT;
