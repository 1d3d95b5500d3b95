/** `ebbmark audit` as a person runs it. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openQueue } from '../../src/index.ts';
import { run } from './support/run.ts';

/** A store that was worked on, and in which something is wrong then. */
async function damagedStore(sql = ''): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-audit-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const path = join(directory, 'queue.db');
  const queue = await openQueue({ store: `sqlite:${path}` });
  await queue.enqueue('mail', [{ payload: 1 }, { payload: 2, messageId: 'm' }]);
  await queue.lease({ max: 1 });
  await queue.stop();
  const db = new Database(path);
  if (sql !== '') db.exec(sql);
  db.close();
  return `sqlite:${path}`;
}

describe('ebbmark audit', () => {
  it('says that nothing was found', async () => {
    const store = await damagedStore();
    expect(await run(['audit', '--store', store])).toEqual({
      code: 0,
      signal: null,
      out: `${store}: nothing found in 2 entries in 1 segments and 1 message rows.\n`,
      err: '',
    });
  });

  it('tells in a table what it found, then with examples, and that it is mended after a repair', async () => {
    const store = await damagedStore('DELETE FROM activity');
    const found = await run(['audit', '--store', store]);
    expect(found).toMatchObject({ code: 1, err: '' });
    expect(found.out).toMatch(/^sqlite:.*: 1 found in 2 entries in 1 segments and 1 message rows\.\n.*--repair/);
    expect(found.out).toMatch(/^rule +kind +found +what it means$/m);
    expect(found.out).toMatch(/^unrecorded-log +lost +1 +tasks wait in a log/m);
    expect(found.out).toMatch(/^ {2}mail:5: segment 0: 2 wait, the first at 0/m);

    const repaired = await run(['audit', '--repair', '--store', store]);
    expect(repaired).toMatchObject({ code: 0, err: '' });
    expect(repaired.out).toMatch(/1 found, 1 mended/);
    expect(repaired.out).toMatch(/→ recorded in the activity index/);
    expect(await run(['audit', '--store', store])).toMatchObject({ code: 0 });
    const leased = await run(['lease', 'mail', '--max', '5', '--store', store, '--json']);
    expect(JSON.parse(leased.out).tasks.map(({ payload }: { payload: unknown }) => payload)).toEqual([2]);
  });

  it('prints JSON, with so many examples as asked for', async () => {
    const store = await damagedStore('UPDATE segment SET term = 99; DELETE FROM task WHERE id = 0');
    const { code, out } = await run(['audit', '--json', '--limit', '1', '--store', store]);
    expect(code).toBe(1);
    const report = JSON.parse(out);
    expect(report).toMatchObject({ store: expect.stringContaining('queue.db'), segments: 1, entries: 1, mended: 0 });
    expect(report.rules).toMatchObject([
      { rule: 'term-ahead', group: 'disorder', found: 1, examples: [{ topic: 'mail' }] },
    ]);
  });

  it('leaves what cannot be mended, says why, and ends with 1', async () => {
    const store = await damagedStore('UPDATE segment SET term = 99');
    const { code, out } = await run(['audit', '--repair', '--store', store]);
    expect(code).toBe(1);
    expect(out).toMatch(/→ left: the term is never set by hand/);
  });

  it('says what to do where a server has the file open', async () => {
    const store = await damagedStore();
    const queue = await openQueue({ store });
    onTestFinished(() => queue.stop());
    const { code, out, err } = await run(['audit', '--store', store]);
    expect([code, out]).toEqual([1, '']);
    expect(err).toMatch(/is in use: another process has it open.* Stop it first/);
  });

  it('makes no store where there is none', async () => {
    const { code, err } = await run(['audit', '--store', 'sqlite:/nowhere/queue.db']);
    expect(code).toBe(1);
    expect(err).toMatch(/There is no store at \/nowhere\/queue\.db/);
  });

  it('explains itself', async () => {
    const { code, out } = await run(['audit', '--help']);
    expect(code).toBe(0);
    for (const part of ['--repair', '--limit', '--json', '--store', 'Exit codes', 'docs/operations.md']) {
      expect(out).toContain(part);
    }
  });
});
