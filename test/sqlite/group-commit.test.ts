import { join } from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Committer, type Write } from '../../src/store/sqlite/committer.ts';
import { openFile } from '../../src/store/sqlite/open.ts';
import { SqliteStore } from '../../src/store/sqlite/store.ts';
import { append, claims, entry, leaseSet, range, readAll, uniqueLog } from '../conformance/harness.ts';
import { opened, scratch } from './scratch.ts';

/** A committer on a database of its own, which tells the statements that reached SQLite. */
function committed(): { db: Database.Database; committer: Committer; statements: string[]; rows(): unknown[] } {
  const statements: string[] = [];
  const db = new Database(join(scratch(), 'group.db'), { verbose: (sql) => statements.push(String(sql)) });
  onTestFinished(() => void db.close());
  db.pragma('journal_mode = WAL');
  db.exec('CREATE TABLE t (name TEXT PRIMARY KEY) STRICT');
  statements.length = 0;
  const all = db.prepare('SELECT name FROM t ORDER BY rowid').pluck();
  return { db, committer: new Committer(db, 'group.db'), statements, rows: () => all.all() };
}

const insert = (db: Database.Database, name: string, changed: Partial<Write<string>> = {}): Write<string> => ({
  run: () => {
    db.prepare('INSERT INTO t (name) VALUES (?)').run(name);
    return name;
  },
  bytes: 100,
  urgent: false,
  ...changed,
});

describe('group commit', () => {
  it('writes what came in one turn in one transaction', async () => {
    const { db, committer, statements } = committed();
    const answers = await Promise.all(range(0, 20).map((i) => committer.submit(insert(db, `n${i}`))));
    expect(answers).toEqual(range(0, 20).map((i) => `n${i}`));
    expect(statements.filter((sql) => sql === 'COMMIT')).toHaveLength(1);
    expect(statements).toHaveLength(22);
  });

  it('answers only once it is committed', async () => {
    const { db, committer } = committed();
    const answered = committer.submit(insert(db, 'a'));
    let committedThen: boolean | null = null;
    void answered.then(() => {
      committedThen = !db.inTransaction;
    });
    await answered;
    expect(committedThen).toBe(true);
  });

  it('puts urgent writes first, and lets the others along', async () => {
    const { db, committer, rows } = committed();
    const names = ['a', 'U1', 'b', 'U2', 'c'];
    await Promise.all(names.map((name) => committer.submit(insert(db, name, { urgent: name.startsWith('U') }))));
    expect(rows()).toEqual(['U1', 'U2', 'a', 'b', 'c']);
  });

  it('leaves what is more than a mebibyte to the next turns, so that others get theirs', async () => {
    const { db, committer, statements } = committed();
    let turns = 0;
    let counting = true;
    const count = () => {
      turns++;
      if (counting) setImmediate(count);
    };
    setImmediate(count);
    await Promise.all(range(0, 12).map((i) => committer.submit(insert(db, `n${i}`, { bytes: 300 * 1024 }))));
    counting = false;
    expect(statements.filter((sql) => sql === 'COMMIT')).toHaveLength(4);
    expect(turns).toBeGreaterThanOrEqual(3);
  });

  it('never starves the others, however much is urgent', async () => {
    const { db, committer, rows } = committed();
    const writes = range(0, 5).map((i) => committer.submit(insert(db, `U${i}`, { bytes: 2 ** 20, urgent: true })));
    writes.push(...range(0, 2).map((i) => committer.submit(insert(db, `o${i}`, { bytes: 2 ** 20 }))));
    await Promise.all(writes);
    expect(rows()).toEqual(['U0', 'o0', 'U1', 'o1', 'U2', 'U3', 'U4']);
  });

  it('takes a single write larger than a transaction', async () => {
    const { db, committer, rows } = committed();
    await committer.submit(insert(db, 'large', { bytes: 2 ** 24 }));
    expect(rows()).toEqual(['large']);
  });

  it('fails a poisoned write alone, in whatever place it stands', async () => {
    const { db, committer, rows } = committed();
    for (const place of [0, 2, 4]) {
      const outcomes = await Promise.allSettled(
        range(0, 5).map((i) =>
          committer.submit(
            i === place
              ? insert(db, 'poison', {
                  run: () => {
                    db.prepare('INSERT INTO t (name) VALUES (?)').run('half');
                    throw new RangeError('poison');
                  },
                })
              : insert(db, `${place}/${i}`),
          ),
        ),
      );
      expect(outcomes.map(({ status }) => status === 'rejected')).toEqual(range(0, 5).map((i) => i === place));
      expect((outcomes[place] as PromiseRejectedResult).reason).toBeInstanceOf(RangeError);
    }
    expect(rows()).toHaveLength(12);
    expect(rows()).not.toContain('half');
  });

  it('writes what waits when it closes, and takes nothing more', async () => {
    const { db, committer, rows } = committed();
    const waiting = range(0, 5).map((i) => committer.submit(insert(db, `n${i}`, { bytes: 2 ** 20 })));
    committer.close();
    expect(rows()).toHaveLength(5);
    await Promise.all(waiting);
    await expect(committer.submit(insert(db, 'late'))).rejects.toMatchObject({ name: 'StoreUnavailableError' });
  });

  it('answers unknown where the commit itself met a bad disk, and an error where the write has no such answer', async () => {
    const { db, committer, rows } = committed();
    let broken = 0;
    const exec = db.exec.bind(db);
    const onBadDisk = new Committer(
      new Proxy(db, {
        get: (target, key) => {
          if (key === 'exec') {
            return (sql: string) => {
              if (sql === 'COMMIT' && broken-- > 0)
                throw new Database.SqliteError('disk I/O error', 'SQLITE_IOERR_FSYNC');
              return exec(sql);
            };
          }
          const value: unknown = Reflect.get(target, key, target);
          return typeof value === 'function' ? value.bind(target) : value;
        },
      }),
      'group.db',
    );
    // Together, then alone: one bad commit is made good by the second try, two are not.
    broken = 1;
    expect(await onBadDisk.submit(insert(db, 'a', { unknown: 'unknown' }))).toBe('a');
    broken = 2;
    expect(await onBadDisk.submit(insert(db, 'b', { unknown: 'unknown' }))).toBe('unknown');
    broken = 2;
    await expect(onBadDisk.submit(insert(db, 'c'))).rejects.toMatchObject({ name: 'StoreUnavailableError' });
    expect(await onBadDisk.submit(insert(db, 'd', { unknown: 'unknown' }))).toBe('d');
    expect(rows()).toEqual(['a', 'd']);
    committer.close();
  });
});

describe('the store', () => {
  it('commits appends, claims and checkpoints of one turn together', async () => {
    const store = await opened(join(scratch(), 'store.db'));
    const log = uniqueLog('together');
    await append(store, log, [entry(0)]);
    const next = { log, segment: 0, expectNext: 1, firstId: 1, entries: [entry(1)], bytes: 1, seal: false };
    const claimNew = { log, segment: 0, changes: claims([1], leaseSet('L')) };
    // The claim is urgent and so runs before the append of the same turn: it finds no row yet.
    const [appended, claimed] = await Promise.all([
      store.append(next),
      store.change(claimNew),
      store.advanceCheckpoint(log, { scan: 1, completion: 0, trimmed: 0 }, 1),
    ]);
    expect(appended).toEqual({ kind: 'applied' });
    expect(claimed).toMatchObject({ kind: 'conflict', rows: [] });
    expect(await store.change(claimNew)).toEqual({ kind: 'applied' });
  });

  it('refuses an append that does not fit its segment, and harms no neighbour', async () => {
    const store = await opened(join(scratch(), 'store.db'), { meta: { segmentSize: 10 } });
    const log = uniqueLog('misfit');
    const entries = range(0, 11).map((i) => entry(i));
    const misfit = { log, segment: 0, expectNext: null, firstId: 0, entries, bytes: 1, seal: false };
    const other = { ...misfit, log: uniqueLog('neighbour'), entries: entries.slice(0, 10) };
    const outcomes = await Promise.allSettled([store.append(misfit), store.append(other)]);
    expect(outcomes).toMatchObject([{ status: 'rejected' }, { status: 'fulfilled', value: { kind: 'applied' } }]);
    expect((outcomes[0] as PromiseRejectedResult).reason).toBeInstanceOf(RangeError);
    expect(await readAll(store, log)).toEqual([]);
    expect(await store.readSegment(log, 0)).toBeNull();
  });

  it('says that it is unavailable when the disk is full, writes nothing of it, and goes on once there is room', async () => {
    const path = join(scratch(), 'store.db');
    const file = openFile(path, undefined);
    const store = new SqliteStore(path, file);
    onTestFinished(() => store.close());
    const log = uniqueLog('full');
    await append(store, log, [entry(0)]);
    const pages = Number(file.db.pragma('page_count', { simple: true }));
    file.db.pragma(`max_page_count = ${pages + 4}`);
    const payload = JSON.stringify('x'.repeat(10_000));
    const large = range(0, 5).map((i) => entry(`large ${i}`, { payload }));
    const small = append(store, { ...log, tier: 1 }, [entry('small')]);
    await expect(append(store, log, large)).rejects.toMatchObject({
      name: 'StoreUnavailableError',
      message: expect.stringContaining('SQLITE_FULL'),
    });
    expect(await small).toBe(0);
    expect((await readAll(store, log)).map(({ uid }) => uid)).toEqual(['uid-0']);
    file.db.pragma('max_page_count = 1000000');
    expect(await append(store, log, large)).toBe(1);
    expect(await readAll(store, log)).toHaveLength(6);
  });
});
