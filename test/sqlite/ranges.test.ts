/**
 * Changes of neighbours that share their `set` are written as one range. Whatever the batch, that must come to the same
 * as row by row: each batch is run twice, once as it is and once with a `set` of its own for each row, and both are held
 * against what the port promises.
 */
import fc from 'fast-check';
import { expect, it, onTestFinished } from 'vitest';
import type { Entry, EntryChange, EntryPatch } from '../../src/core/entry.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { append, entry, range, readAll, uniqueTopic } from '../conformance/harness.ts';

const ROWS = 12;

const patch: fc.Arbitrary<EntryPatch> = fc.record(
  {
    status: fc.constantFrom('leased', 'leased', 'leased', 'done', 'ready', 'moved'),
    version: fc.integer({ min: 1, max: 3 }),
    updatedAt: fc.integer({ min: 1, max: 9 }),
    leaseId: fc.constantFrom('L', 'M', null),
    worker: fc.constantFrom('w', null),
    result: fc.constantFrom('"r"', null),
    dest: fc.constantFrom(null, { topic: 'else', tier: 1, id: 4 }),
    reason: fc.constantFrom('why', null),
  },
  { requiredKeys: ['status', 'version', 'updatedAt'] },
);

/** A batch: some ids, each with one of a few patches and a condition that often holds. */
const batch = fc
  .tuple(
    fc.array(patch, { minLength: 1, maxLength: 3 }),
    fc.subarray(range(0, ROWS + 1), { minLength: 1 }),
    fc.boolean(),
  )
  .chain(([patches, ids, backwards]) =>
    fc.tuple(
      ...(backwards ? ids.toReversed() : ids).map((id) =>
        fc.record({
          id: fc.constant(id),
          set: fc.constantFrom(...patches),
          expect: fc.oneof(
            { weight: 6, arbitrary: fc.constant('as it is' as const) },
            { weight: 1, arbitrary: fc.constantFrom<EntryChange['expect']>({ leaseId: 'L' }, { leaseId: 'M' }) },
            { weight: 1, arbitrary: fc.constant<EntryChange['expect']>({ uid: `uid-${id}`, version: 1 }) },
          ),
        }),
      ),
    ),
  );

it('range updates give what changes row by row give', async () => {
  const store = await openSqliteStore(':memory:', { meta: { segmentSize: 20 } });
  onTestFinished(() => store.close());
  let applied = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(batch, { minLength: 1, maxLength: 6 }), async (batches) => {
      const [asRanges, rowByRow] = [uniqueTopic('range'), uniqueTopic('row')];
      for (const topic of [asRanges, rowByRow]) {
        await append(
          store,
          { topic, tier: 5 },
          range(0, ROWS).map((i) => entry(i)),
        );
      }
      for (const drawn of batches) {
        const before = await readAll(store, { topic: asRanges, tier: 5 });
        const changes = conditions(before, drawn);
        const first = await store.change({ log: { topic: asRanges, tier: 5 }, segment: 0, changes });
        const apart = changes.map((change) => ({ ...change, set: { ...change.set } }));
        const second = await store.change({ log: { topic: rowByRow, tier: 5 }, segment: 0, changes: apart });
        expect(second).toEqual(first);
        if (first.kind === 'applied') applied++;
        const rows = await readAll(store, { topic: asRanges, tier: 5 });
        expect(rows).toEqual(first.kind === 'applied' ? changed(before, changes) : before);
        expect(first.kind === 'applied').toBe(changes.every((change) => holds(before, change)));
        expect(await readAll(store, { topic: rowByRow, tier: 5 })).toEqual(rows);
      }
    }),
    { numRuns: 150 },
  );
  expect(applied).toBeGreaterThan(50);
});

/** Fills in the conditions that hold for the rows as they stand. */
function conditions(
  before: readonly Entry[],
  drawn: readonly (Omit<EntryChange, 'expect'> & { readonly expect: EntryChange['expect'] | 'as it is' })[],
): EntryChange[] {
  const rows = new Map(before.map((row) => [row.id, row]));
  return drawn.map(({ id, set, expect }) => {
    if (expect !== 'as it is') return { id, set, expect };
    const row = rows.get(id);
    if (row === undefined) return { id, set, expect: { leaseId: 'L' } };
    const byLease = row.status === 'leased' && row.leaseId !== null && id % 2 === 0;
    return { id, set, expect: byLease ? { leaseId: row.leaseId! } : { uid: row.uid, version: row.version } };
  });
}

function holds(rows: readonly Entry[], { id, expect }: EntryChange): boolean {
  const row = rows.find((one) => one.id === id);
  if (row === undefined) return false;
  if ('leaseId' in expect) return row.status === 'leased' && row.leaseId === expect.leaseId;
  return row.uid === expect.uid && row.version === expect.version;
}

function changed(rows: readonly Entry[], changes: readonly EntryChange[]): Entry[] {
  const sets = new Map(changes.map(({ id, set }) => [id, set]));
  return rows.map((row) => ({ ...row, ...sets.get(row.id) }));
}
