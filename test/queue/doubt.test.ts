/** Writes of which the store could not say whether they were applied, and what the caller is told. */
import { expect, onTestFinished, test } from 'vitest';
import { startQueue } from '../../src/queue/open.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { type Store, StoreUnavailableError, UNKNOWN } from '../../src/store/store.ts';
import { manualEnvironment } from '../support/manual-environment.ts';

const VERBS = ['append', 'change', 'writeMessages', 'recordActivity'] as const;
type Verb = (typeof VERBS)[number];
/** What becomes of one call: it goes through, is carried out and not answered, or is refused. */
type Fate = 'through' | 'lost answer' | 'out of reach';

/** A queue on a store that treats the next calls of a verb as it is told, and those after them well. */
async function doubtful() {
  const env = manualEnvironment();
  const store = await openSqliteStore(':memory:', { now: env.now });
  const fates = new Map<string, Fate[]>();
  const shaky = new Proxy(store, {
    get(target, name) {
      const member = Reflect.get(target, name) as unknown;
      if (typeof member !== 'function') return member;
      if (!VERBS.includes(name as Verb)) return member.bind(target) as unknown;
      return async (...args: unknown[]) => {
        const fate = fates.get(String(name))?.shift() ?? 'through';
        if (fate === 'out of reach') throw new StoreUnavailableError('out of reach');
        const answer: unknown = await Reflect.apply(member, target, args);
        return fate === 'lost answer' ? UNKNOWN : answer;
      };
    },
  }) as Store;
  const queue = await startQueue(shaky, { environment: env });
  onTestFinished(() => queue.stop());
  const next = (verb: Verb, ...some: Fate[]): void => void fates.set(verb, some);
  /** The result, or the code of the error, once time has gone on for so long. */
  const after = async <T>(ms: number, call: Promise<T>): Promise<T | string> => {
    const ended = call.catch((error: { code?: string }) => String(error.code));
    await env.advance(ms);
    return ended;
  };
  return { queue, next, after };
}

const all = (count: number, fate: Fate): Fate[] => Array.from({ length: count }, () => fate);

test('an append that landed is known for ours, also where the store was out of reach in between', async () => {
  const { queue, next, after } = await doubtful();
  next('append', 'lost answer', 'out of reach', 'out of reach');
  const put = await after(1_000, queue.enqueue('t', { payload: 1 }));
  expect(put).toMatchObject({ deduplicated: false });
  expect((await queue.lease({ max: 5 })).map(({ id }) => id)).toEqual([(put as { id: string }).id]);
  expect(queue.status().unknown).toEqual({ applied: 0, landed: 1, refused: 0, open: 0 });
});

test('what was perhaps written is not said not to be: out of reach after a doubt stays a doubt', async () => {
  const { queue, next, after } = await doubtful();
  next('append', 'lost answer', ...all(1_000, 'out of reach'));
  expect(await after(20_000, queue.enqueue('t', { payload: 1, messageId: 'm' }))).toBe('outcome-unknown');
  expect(queue.status().unknown.open).toBe(1);
  next('append');
  const again = await queue.enqueue('t', { payload: 1, messageId: 'm' });
  expect(await queue.enqueue('t', { payload: 1, messageId: 'm' })).toEqual({ ...again, deduplicated: true });
  const tasks = await queue.lease({ max: 5 });
  expect(tasks).toHaveLength(1);
});

test('where nothing was written, that is what is said', async () => {
  const { queue, next, after } = await doubtful();
  next('append', 'out of reach');
  expect(await after(0, queue.enqueue('t', { payload: 1 }))).toBe('store-unavailable');
  expect(await queue.lease()).toEqual([]);
});

test.each(['writeMessages', 'recordActivity'] as const)('an append without its %s is in doubt', async (verb) => {
  const { queue, next, after } = await doubtful();
  next(verb, 'out of reach');
  expect(await after(0, queue.enqueue('t', { payload: 1, messageId: 'm' }))).toBe('outcome-unknown');
  expect(await queue.enqueue('t', { payload: 1, messageId: 'm' })).toMatchObject({ deduplicated: false });
  expect(await queue.lease({ max: 5 })).toHaveLength(1);
});

test('a settlement that landed is known for ours', async () => {
  const { queue, next, after } = await doubtful();
  await queue.enqueue('t', { payload: 1 });
  const [task] = await queue.lease();
  next('change', 'lost answer', 'out of reach');
  const settled = await after(1_000, queue.settle({ ack: [{ leaseId: task!.leaseId, result: 7 }] }));
  expect(settled).toMatchObject({ ack: [{ ok: true }] });
  expect(await queue.task('t', task!.id)).toMatchObject({ state: 'done', result: 7 });
});
