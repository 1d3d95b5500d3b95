/**
 * What a key sees is the same in a queue with topics of others as in one without them: two queues go through the same steps,
 * at the same times, but for what others do, which only one of them sees; the holder of a key compares all that he is told.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { mayUse, ROLES } from '../../src/core/api-key.ts';
import type { Queue } from '../../src/queue/api.ts';
import { type ManualEnvironment, manualEnvironment } from '../support/manual-environment.ts';
import { type Answer, startServer, type TestServer, tasksPath, topicPath } from './support/server.ts';

interface World {
  readonly server: TestServer;
  readonly env: ManualEnvironment;
}

const newWorld = async (): Promise<World> => {
  // Without jitter: back-offs end at the same time in both.
  const env = { ...manualEnvironment(), random: () => 0.5 };
  return { env, server: await startServer({ needsKeys: true, environment: env }) };
};

/** With what others do, and without. */
let both: World;
let alone: World;
let runs = 0;
beforeAll(async () => {
  [both, alone] = await Promise.all([newWorld(), newWorld()]);
});
afterAll(() => Promise.all([both, alone].map(({ server }) => server.close())));

// ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────────

const NAMES = ['a', 'a/1', 'ab', 'b', 'b/1', 'ba', 'c'];
const PREFIXES = ['a', 'a/', 'b', 'ab', 'c'];

const name = fc.constantFrom(...NAMES);
const nth = fc.nat(20);
const limit = fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined });
const selector = fc.oneof(
  name,
  fc.constantFrom(...PREFIXES, '').map((prefix) => `${prefix}*`),
);
const task = fc.record(
  {
    payload: fc.constantFrom(1, 'x'),
    priority: fc.constantFrom(0, 5, 9),
    messageId: fc.constantFrom('m1', 'm2'),
    delayMs: fc.constantFrom(1, 5_000, 30_000, 4_000_000),
    ttlMs: fc.constant(5_000_000),
    onDuplicate: fc.constantFrom('keep', 'again', 'replace'),
  },
  { requiredKeys: ['payload'] },
);
/** Whose lease or task: the key holder's own, or another's. */
const whose = fc.constantFrom('own', 'other');
const kind = fc.constantFrom('ack', 'nack', 'extend', 'progress', 'release');

/** What the holder of the key does; `name` may be that of a topic outside. */
const own = fc.oneof(
  fc.record({ do: fc.constant('enqueue'), name, tasks: fc.array(task, { minLength: 1, maxLength: 3 }) }),
  fc.record({
    do: fc.constant('lease'),
    topics: fc.option(fc.array(selector, { minLength: 1, maxLength: 3 }), { nil: undefined }),
    max: fc.integer({ min: 1, max: 4 }),
    order: fc.constantFrom('fair', 'priority'),
  }),
  fc.record({ do: fc.constant('settle'), kind, whose, nth }),
  fc.record({ do: fc.constant('task'), method: fc.constantFrom('GET', 'DELETE', 'PATCH', 'WHY'), name, whose, nth }),
  fc.record({ do: fc.constant('find'), name, messageId: fc.constantFrom('m1', 'm2') }),
  fc.record({
    do: fc.constant('list'),
    name,
    state: fc.constantFrom(undefined, 'ready', 'delayed', 'leased', 'done'),
    limit,
    isNext: fc.boolean(),
  }),
  fc.record({
    do: fc.constant('topics'),
    prefix: fc.constantFrom(undefined, '', ...PREFIXES),
    limit,
    isNext: fc.boolean(),
  }),
  fc.record({
    do: fc.constant('topic'),
    name,
    // Not what waits for the clock, which stands still: a purge, and a wait until a topic is drained.
    what: fc.constantFrom('get', 'set', 'cursors', 'why', 'pause', 'resume', 'redrive', 'scan'),
  }),
  fc.record({ do: fc.constant('schedule'), schedule: name, name, method: fc.constantFrom('GET', 'PUT', 'DELETE') }),
  fc.record({ do: fc.constant('schedules'), limit, isNext: fc.boolean() }),
);
/** What others do, in topics that are not the key's. */
const other = fc.oneof(
  fc.record({ do: fc.constant('enqueue'), name, tasks: fc.array(task, { minLength: 1, maxLength: 20 }) }),
  fc.record({ do: fc.constant('lease'), max: fc.integer({ min: 1, max: 10 }) }),
  fc.record({ do: fc.constant('settle'), kind, nth }),
  fc.record({ do: fc.constant('set'), name, paused: fc.boolean() }),
  fc.record({ do: fc.constant('schedule'), schedule: name, name }),
);
const step = fc.oneof(
  { weight: 5, arbitrary: own.map((call) => ({ by: 'own' as const, call })) },
  { weight: 4, arbitrary: other.map((call) => ({ by: 'other' as const, call })) },
  { weight: 1, arbitrary: fc.constantFrom(1, 1_000, 40_000).map((ms) => ({ by: 'time' as const, ms })) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;
type Own = Extract<Step, { by: 'own' }>['call'];
type Other = Extract<Step, { by: 'other' }>['call'];

// ── the one who holds the key ───────────────────────────────────────────────────────────────────────────────────────

/** What others have, as their ids and lease tokens are known to whoever has spied them out. */
interface Loot {
  readonly ids: string[];
  readonly leases: string[];
}

const PATTERN = '0 0 1 1 *';

class Holder {
  readonly #server: TestServer;
  readonly #root: string;
  readonly #key: string;
  readonly #ids: string[] = [];
  readonly #leases: string[] = [];
  /** Cursors by the list they belong to. */
  readonly #after = new Map<string, string>();

  constructor(server: TestServer, root: string, key: string) {
    this.#server = server;
    this.#root = root;
    this.#key = key;
  }

  async make(step: Own, loot: Loot): Promise<unknown> {
    const answer = await this.#send(step, loot);
    if (answer === null) return null;
    const { json } = answer;
    if (step.do === 'enqueue' && answer.status === 201) {
      this.#ids.push(...json.tasks.flatMap(({ id }: { id: string | null }) => id ?? []));
    }
    if (step.do === 'lease') this.#leases.push(...json.tasks.map(({ leaseId }: { leaseId: string }) => leaseId));
    return seen(answer);
  }

  #send(step: Own, loot: Loot): Promise<Answer> | null {
    const topic = 'name' in step ? this.#root + step.name : '';
    switch (step.do) {
      case 'enqueue':
        return this.#call('POST', tasksPath(topic), { tasks: step.tasks });
      case 'lease': {
        const { max, order, topics } = step;
        const named = topics?.map((one) => this.#root + one);
        return this.#call('POST', '/v1/leases', { max, order, leaseMs: 20_000, ...(named && { topics: named }) });
      }
      case 'settle': {
        const leaseId = pick(step.whose === 'own' ? this.#leases : loot.leases, step.nth);
        if (leaseId === undefined) return null;
        const more = { ack: {}, nack: {}, extend: { leaseMs: 1_000 }, progress: { position: 1 }, release: {} }[
          step.kind
        ];
        return this.#call('POST', '/v1/leases/settle', { [step.kind]: [{ leaseId, ...more }] });
      }
      case 'task': {
        const id = pick(step.whose === 'own' ? this.#ids : loot.ids, step.nth);
        if (id === undefined) return null;
        if (step.method === 'WHY') return this.#admin(topic, `why?task=${encodeURIComponent(id)}`, 'GET');
        const body = step.method === 'PATCH' ? { priority: 7 } : undefined;
        return this.#call(step.method, `${tasksPath(topic)}/${encodeURIComponent(id)}`, body);
      }
      case 'find':
        return this.#call('GET', `${tasksPath(topic)}?messageId=${step.messageId}`);
      case 'list':
        return this.#page(tasksPath(topic), { state: step.state, limit: step.limit }, step.isNext);
      case 'topics':
        return this.#page(
          '/v1/topics',
          { prefix: step.prefix === undefined ? undefined : this.#root + step.prefix, limit: step.limit },
          step.isNext,
        );
      case 'topic':
        return this.#topic(topic, step.what);
      case 'schedule': {
        const body = step.method === 'PUT' ? { topic, pattern: PATTERN, payload: 1 } : undefined;
        return this.#call(step.method, `/v1/schedules/${encodeURIComponent(this.#root + step.schedule)}`, body);
      }
      case 'schedules':
        return this.#page('/v1/schedules', { limit: step.limit }, step.isNext);
    }
  }

  #topic(topic: string, what: Extract<Own, { do: 'topic' }>['what']): Promise<Answer> {
    switch (what) {
      case 'get':
        return this.#call('GET', topicPath(topic));
      case 'set':
        return this.#call('PUT', topicPath(topic), { maxAttempts: 2 });
      case 'cursors':
      case 'why':
        return this.#admin(topic, what, 'GET');
      default:
        return this.#admin(topic, what, 'POST');
    }
  }

  #admin(topic: string, what: string, method: string): Promise<Answer> {
    return this.#call(method, `/v1/admin/topics/${encodeURIComponent(topic)}/${what}`);
  }

  async #page(path: string, query: Readonly<Record<string, unknown>>, isNext: boolean): Promise<Answer> {
    const list = `${path} ${JSON.stringify(query)}`;
    const after = isNext ? this.#after.get(list) : undefined;
    const search = new URLSearchParams();
    for (const [field, value] of Object.entries({ ...query, after })) {
      if (value !== undefined) search.set(field, String(value));
    }
    const answer = await this.#call('GET', `${path}?${search}`);
    if (answer.json.after === undefined) this.#after.delete(list);
    else this.#after.set(list, answer.json.after);
    return answer;
  }

  #call(method: string, path: string, body?: unknown): Promise<Answer> {
    return this.#server.call(method, path, { body, headers: { authorization: `Bearer ${this.#key}` } });
  }
}

const pick = <T>(from: readonly T[], nth: number): T | undefined => from[nth % Math.max(1, from.length)];

/** An answer without what is random, and the length of that. */
function seen({ status, headers, text }: Answer): unknown {
  const { date, 'content-length': _length, ...rest } = headers;
  return { status, headers: rest, text: withoutRandom(text) };
}

function withoutRandom(text: string): string {
  const known = new Map<string, string>();
  const placeholder = (random: string): string => {
    if (!known.has(random)) known.set(random, `#${known.size}`);
    return known.get(random)!;
  };
  return (
    text
      // The id of a task with a message id holds that.
      .replace(/(?<=[0-9A-Z]{26}~)[\w-]+/g, (encoded) => Buffer.from(encoded, 'base64url').toString())
      // Cut short in an error's detail.
      .replace(/(?<=idempotency-key:)[0-9a-f-]+/g, placeholder)
      .replace(/\b[0-9A-HJKMNP-TV-Z]{26}\b/g, placeholder)
      .replace(/(?<=")[\w-]{22}(?=\.\d+\.\d+\.)/g, placeholder)
      // Cursors of tasks are sealed, each world by a secret of its own; others name what was listed last.
      .replace(/(?<="after":")[\w-]{22,}(?=")/g, 'sealed')
  );
}

// ── others ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Does something in the one queue, in topics and with schedules outside the key's prefixes. */
async function makeOther(
  queue: Queue,
  root: string,
  prefixes: readonly string[],
  call: Other,
  loot: Loot,
): Promise<void> {
  const outside = NAMES.map((one) => root + one).filter((one) => !mayUse(prefixes, one));
  if (outside.length === 0) return;
  const topic = 'name' in call ? pick(outside, NAMES.indexOf(call.name))! : '';
  switch (call.do) {
    case 'enqueue': {
      const results = await queue.enqueue(topic, call.tasks);
      loot.ids.push(...results.flatMap(({ id }) => id ?? []));
      break;
    }
    case 'lease': {
      const tasks = await queue.lease({ topics: outside, max: call.max });
      loot.leases.push(...tasks.map(({ leaseId }) => leaseId));
      break;
    }
    case 'settle': {
      const leaseId = pick(loot.leases, call.nth);
      if (leaseId === undefined) return;
      const more = { ack: {}, nack: {}, extend: { leaseMs: 1_000 }, progress: { position: 1 }, release: {} }[call.kind];
      await queue.settle({ [call.kind]: [{ leaseId, ...more }] });
      break;
    }
    case 'set':
      await queue.configure(topic, { paused: call.paused });
      break;
    case 'schedule': {
      const schedule = pick(outside, NAMES.indexOf(call.schedule))!;
      await queue.setSchedule(schedule, { topic, pattern: PATTERN, payload: 1 });
    }
  }
}

describe('a key for some topics', () => {
  it('is told the same whether or not there are others', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(fc.constantFrom(...PREFIXES), { minLength: 1, maxLength: 3 }),
        fc.array(step, { minLength: 20, maxLength: 60 }),
        async (some, steps) => {
          // Names of its own: what earlier runs have left is there in both, or is others'.
          const root = `run-${runs++}/`;
          const prefixes = some.map((prefix) => root + prefix);
          const input = { roles: ROLES, prefixes };
          const [inBoth, inAlone] = await Promise.all(
            [both, alone].map(async ({ server }) => new Holder(server, root, (await server.newKey(input)).key)),
          );
          const loot: Loot = { ids: [], leases: [] };
          for (const one of steps) {
            if (one.by === 'other') await makeOther(both.server.queue, root, prefixes, one.call, loot);
            else if (one.by === 'time') await Promise.all([both, alone].map(({ env }) => env.advance(one.ms)));
            else expect(await inBoth!.make(one.call, loot)).toEqual(await inAlone!.make(one.call, loot));
          }
        },
      ),
      { numRuns: 25, endOnFailure: true },
    );
  });
});
