/** The auditor is worth what it refuses: a bad history for each rule, and a good one it must let pass. */
import { describe, expect, test } from 'vitest';
import { DEFAULT_SETTINGS, type TopicSettings } from '../../src/core/settings.ts';
import type { LeasedTask, PriorityCursors, ScheduleInfo, SettleResult, TaskInfo } from '../../src/queue/api.ts';
import { audit } from './auditor.ts';
import type { Answer, AnyCall, Call, CallKind, Calls, History } from './history.ts';

const EPOCH = 1_700_000_000_000;
const LEASE_MS = 1_000;
const id = (nth: number, messageId?: string): string =>
  `01HF7YAT00000000000000000${nth}${messageId === undefined ? `.5.${nth}` : `~${Buffer.from(messageId).toString('base64url')}`}`;

/** Builds a history call by call; times are the simulation's. */
class Story {
  readonly calls: AnyCall[] = [];
  readonly settings = new Map<string, TopicSettings>([
    ['t', { ...DEFAULT_SETTINGS, leaseMs: LEASE_MS, maxAttempts: 3, backoffMs: 100, maxBackoffMs: 100 }],
  ]);
  calm = true;
  quietFrom = 100_000;
  schedule: History['schedule'] = null;

  call<K extends CallKind>(
    kind: K,
    at: number,
    args: Calls[K]['args'],
    answer: Answer<Calls[K]['value']>,
    tookMs = 2,
    server = 1,
  ): this {
    const call: Call<K> = {
      n: this.calls.length,
      kind,
      actor: 'somebody',
      server,
      args,
      began: { at, clock: EPOCH + at },
      ended: { at: at + tookMs, clock: EPOCH + at + tookMs },
      answer,
    };
    this.calls.push(call as AnyCall);
    return this;
  }

  /** Puts a task in, with its number as its token. */
  put(
    at: number,
    nth: number,
    input: Partial<Calls['enqueue']['args']['tasks'][number]['input']> = {},
    known?: number,
  ): this {
    const sent = { token: nth, input: { payload: { t: nth }, ...input } };
    const own = id(known ?? nth, input.messageId);
    return this.call(
      'enqueue',
      at,
      { topic: 't', tasks: [sent] },
      ok([{ id: own, deduplicated: known !== undefined }]),
    );
  }

  /** Hands tasks out. */
  lease(
    at: number,
    tasks: readonly (Partial<LeasedTask> & { readonly nth: number })[],
    args: Calls['lease']['args'] = {},
  ): this {
    const got = tasks.map(
      ({ nth, ...changed }): LeasedTask => ({
        topic: 't',
        id: id(nth, changed.messageId ?? undefined),
        messageId: null,
        payload: { t: nth },
        metadata: {},
        priority: 5,
        attempt: 1,
        progress: null,
        enqueuedAt: EPOCH,
        leaseId: `lease-${nth}-${at}`,
        leaseUntil: EPOCH + at + 1 + LEASE_MS,
        ...changed,
      }),
    );
    return this.call('lease', at, args, ok(got));
  }

  settle(
    at: number,
    kind: 'ack' | 'nack' | 'release' | 'extend',
    leaseId: string,
    changed: object = {},
    accepted = true,
  ): this {
    const item = accepted
      ? { leaseId, ok: true as const }
      : { leaseId, ok: false as const, code: 'lease-lost', detail: '' };
    const value: SettleResult = { ack: [], nack: [], extend: [], progress: [], release: [], [kind]: [item] };
    return this.call('settle', at, { [kind]: [{ leaseId, ...changed }] }, ok(value));
  }

  /** Looks at everything, at the end. */
  look(states: Readonly<Record<number, TaskInfo['state']>>, changed: Partial<TaskInfo> = {}): this {
    const tasks = Object.entries(states).map(([nth, state]) => info(Number(nth), state, changed));
    return this.call('list', this.quietFrom + 1, { topic: 't', state: null }, ok(tasks));
  }

  /** The rules that were broken, by the names with which their messages begin. */
  broken(): readonly string[] {
    const history: History = {
      calls: this.calls,
      calm: this.calm,
      delayedLateMs: 250,
      epoch: EPOCH,
      setup: [],
      servers: 1,
      clockErrorMs: 0,
      quietFrom: this.quietFrom,
      settings: this.settings,
      schedule: this.schedule,
    };
    return [...new Set(audit(history).map((violation) => violation.slice(0, violation.indexOf(':'))))];
  }
}

const ok = <V>(value: V): Answer<V> => ({ kind: 'ok', value });
const lost = { kind: 'lost' } as const;

const info = (nth: number, state: TaskInfo['state'], changed: Partial<TaskInfo>): TaskInfo => ({
  topic: 't',
  id: id(nth, changed.messageId ?? undefined),
  messageId: null,
  state,
  priority: 5,
  payload: { t: nth },
  metadata: {},
  attempt: 1,
  maxAttempts: 3,
  attempts: [],
  progress: null,
  result: null,
  enqueuedAt: EPOCH,
  dueAt: null,
  expiresAt: null,
  leaseUntil: null,
  settledAt: EPOCH + 50_000,
  reason: null,
  ...changed,
});

const cursor = (changed: Partial<PriorityCursors>): PriorityCursors => ({
  priority: 5,
  nextId: 9,
  scanCursor: 5,
  completionCursor: 3,
  trimmed: 0,
  lag: 2,
  ready: 0,
  inFlight: 0,
  oldestReadyMs: null,
  segments: 1,
  heldBy: null,
  ...changed,
});

/** A task that is put in, handed out at 10 and acknowledged. */
const whole = (): Story =>
  new Story()
    .put(0, 1)
    .lease(10, [{ nth: 1 }])
    .settle(20, 'ack', 'lease-1-10')
    .look({ 1: 'done' });

test('lets a good history pass', () => {
  const story = whole()
    .put(30, 2, { messageId: 'm', delayMs: 50 })
    .lease(400, [{ nth: 2, messageId: 'm' }])
    .settle(410, 'nack', 'lease-2-400', { delayMs: 100 })
    .lease(900, [{ nth: 2, messageId: 'm', attempt: 2 }])
    .settle(950, 'extend', 'lease-2-900', { leaseMs: 1_000 })
    .settle(960, 'ack', 'lease-2-900');
  story.call('list', 100_010, { topic: 't', state: null }, ok([info(2, 'done', { messageId: 'm' })]));
  story.call('drained', 2_000, { topic: 't', timeoutMs: 0 }, ok(true));
  story.call('counts', 100_020, { topic: 't' }, ok({ ready: 0, delayed: 0, leased: 0, dead: 0 }));
  story.call('cursors', 30, { topic: 't' }, ok({ topic: 't', priorities: [cursor({})] }));
  story.call(
    'cursors',
    40,
    { topic: 't' },
    ok({ topic: 't', priorities: [cursor({ scanCursor: 9, completionCursor: 9 })] }),
  );
  expect(story.broken()).toEqual([]);
});

describe('Q1: nothing is lost, nothing comes from nowhere', () => {
  test.each([
    ['ready', 'ready'],
    ['delayed', 'delayed'],
    ['leased', 'leased'],
  ] as const)('a task that is %s in the end', (_, state) => {
    expect(new Story().put(0, 1).look({ 1: state }).broken()).toEqual(['Q1 loss']);
  });

  test.each(['done', 'dead', 'expired', 'cancelled'] as const)('a task that nobody made %s', (state) => {
    expect(new Story().put(0, 1).look({ 1: state }).broken()).toEqual(['Q1 loss']);
  });

  test('a task that is nowhere', () => {
    expect(new Story().put(0, 1).look({}).broken()).toEqual(['Q1 loss']);
    const asked = new Story().put(0, 1).look({});
    asked.call('task', 100_002, { topic: 't', id: id(1) }, { kind: 'refused', code: 'task-not-found' });
    expect(asked.broken()).toEqual(['Q1 loss']);
  });

  test('a result that its worker did not give', () => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .settle(20, 'ack', 'lease-1-10', { result: 'mine' });
    expect(story.look({ 1: 'done' }, { result: 'another' }).broken()).toEqual(['Q1 loss']);
  });

  test('an acknowledged task that ends otherwise', () => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .settle(20, 'ack', 'lease-1-10');
    expect(story.look({ 1: 'dead' }, { attempt: 3 }).broken()).toEqual(['Q1 loss']);
  });

  test('a cancelled task that ends otherwise', () => {
    const story = new Story().put(0, 1).lease(10, [{ nth: 1 }]);
    story.call('cancel', 12, { topic: 't', id: id(1) }, ok(info(1, 'cancelled', {})));
    expect(story.settle(20, 'ack', 'lease-1-10', {}, false).look({ 1: 'done' }).broken()).toEqual(['Q1 loss']);
  });

  test.each([
    ['a payload that nobody sent', { payload: { t: 7 } }],
    ['another id than was told', { id: id(8) }],
    ['other metadata', { metadata: { a: 'b' } }],
    ['another message id', { messageId: 'x', id: id(1) }],
  ])('a delivery with %s', (_, changed) => {
    expect(
      new Story()
        .put(0, 1)
        .lease(10, [{ nth: 1, ...changed }])
        .broken(),
    ).toContain('Q1 nowhere');
  });

  test('a delivery of a task that was refused', () => {
    const story = new Story();
    story.call(
      'enqueue',
      0,
      { topic: 't', tasks: [{ token: 1, input: { payload: { t: 1 } } }] },
      { kind: 'refused', code: 'store-unavailable' },
    );
    expect(story.lease(10, [{ nth: 1 }]).broken()).toEqual(['Q1 nowhere']);
  });

  test('but not of one in doubt', () => {
    const story = new Story();
    story.call('enqueue', 0, { topic: 't', tasks: [{ token: 1, input: { payload: { t: 1 } } }] }, lost);
    expect(
      story
        .lease(10, [{ nth: 1 }])
        .settle(20, 'ack', 'lease-1-10')
        .look({ 1: 'done' })
        .broken(),
    ).toEqual([]);
  });
});

describe('Q2 and Q3: one lease, one settlement', () => {
  test('two leases at once', () => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .lease(500, [{ nth: 1, attempt: 2 }]);
    expect(story.broken()).toEqual(['Q2']);
  });

  test('a lease taken away that was extended', () => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .lease(1_200, [{ nth: 1, attempt: 2 }]);
    const item = { leaseId: 'lease-1-10', ok: true as const, leaseUntil: EPOCH + 2_000 };
    const value = { ack: [], nack: [], extend: [item], progress: [], release: [] };
    story.call('settle', 900, { extend: [{ leaseId: 'lease-1-10', leaseMs: 1_100 }] }, ok(value));
    expect(story.broken()).toEqual(['Q2']);
  });

  test('a settlement by who lost the lease', () => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .lease(1_500, [{ nth: 1, attempt: 2 }]);
    expect(story.settle(1_600, 'ack', 'lease-1-10').look({ 1: 'done' }).broken()).toEqual(['Q3']);
  });

  test.each(['nack', 'release', 'extend'] as const)('%s after another one has got it', (kind) => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .lease(1_500, [{ nth: 1, attempt: 2 }]);
    expect(story.settle(1_600, kind, 'lease-1-10').broken()).toContain('Q3');
  });

  test('a settlement of what was cancelled', () => {
    const story = new Story().put(0, 1).lease(10, [{ nth: 1 }]);
    story.call('cancel', 12, { topic: 't', id: id(1) }, ok(info(1, 'cancelled', {})));
    expect(story.settle(20, 'nack', 'lease-1-10').broken()).toEqual(['Q3']);
  });

  test('a lease that ends in two ways', () => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .settle(20, 'ack', 'lease-1-10')
      .settle(30, 'nack', 'lease-1-10');
    expect(story.broken()).toEqual(['Q3']);
  });

  test('a task handed out after it was acknowledged', () => {
    expect(
      whole()
        .lease(2_000, [{ nth: 1, attempt: 2 }])
        .broken(),
    ).toContain('Q3');
  });

  test('but not an ack that is asked again', () => {
    expect(whole().settle(2_000, 'ack', 'lease-1-10').broken()).toEqual([]);
  });
});

describe('Q4: cursors', () => {
  const looks = (...cursors: readonly PriorityCursors[]): Story => {
    const story = new Story();
    for (const [nth, one] of cursors.entries())
      story.call('cursors', nth * 10, { topic: 't' }, ok({ topic: 't', priorities: [one] }));
    return story;
  };
  test.each([
    ['completion beyond scan', { completionCursor: 6 }],
    ['scan beyond the next id', { scanCursor: 10 }],
    ['trimmed beyond completion', { trimmed: 4 }],
  ])('%s', (_, changed) => {
    expect(looks(cursor(changed)).broken()).toEqual(['Q4']);
  });
  test.each([
    ['scan', { scanCursor: 4 }],
    ['completion', { completionCursor: 2 }],
    ['the next id', { nextId: 8 }],
  ])('%s falls', (_, changed) => {
    expect(looks(cursor({}), cursor(changed)).broken()).toEqual(['Q4']);
  });
});

describe('Q5: nobody waits in vain', () => {
  test('a lease that ends empty while something was ready', () => {
    const story = new Story().put(0, 1).lease(3_000, []);
    story
      .lease(4_000, [{ nth: 1 }])
      .settle(4_010, 'ack', 'lease-1-4000')
      .look({ 1: 'done' });
    expect(story.broken()).toEqual(['Q5']);
  });

  test('a stalled task that is not back in time', () => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .lease(5_000, []);
    story
      .lease(6_000, [{ nth: 1, attempt: 2 }])
      .settle(6_010, 'ack', 'lease-1-6000')
      .look({ 1: 'done' });
    expect(story.broken()).toEqual(['Q5']);
  });

  test('a delayed task that is late', () => {
    const story = new Story().put(0, 1, { delayMs: 1_000 }).lease(3_000, []);
    story
      .lease(4_000, [{ nth: 1 }])
      .settle(4_010, 'ack', 'lease-1-4000')
      .look({ 1: 'done' });
    expect(story.broken()).toEqual(['Q5']);
  });
});

describe('Q6: message ids', () => {
  const two = (input: object = {}): Story =>
    new Story()
      .put(0, 1, { messageId: 'm' })
      .lease(10, [{ nth: 1, messageId: 'm' }])
      .settle(20, 'ack', 'lease-1-10')
      .put(100, 2, { messageId: 'm', ...input });

  test('two tasks at once', () => {
    const story = new Story().put(0, 1, { messageId: 'm' }).put(100, 2, { messageId: 'm', onDuplicate: 'again' });
    story.lease(200, [{ nth: 1, messageId: 'm' }]);
    expect(story.broken()).toEqual(['Q6']);
  });

  test('two at once, unless another server may have handed the first one out to nobody', () => {
    const story = (leaseTookMs: number): Story => {
      const told = new Story().put(0, 1, { messageId: 'm' }).put(100, 2, { messageId: 'm', onDuplicate: 'again' });
      told.calm = false;
      return told.call('lease', 10, { waitMs: 500 }, ok([]), leaseTookMs);
    };
    expect(story(600).broken()).toEqual(['Q6']);
    expect(story(10_500).broken()).toEqual([]);
  });

  test('a second one within the window', () => {
    expect(two().broken()).toEqual(['Q6']);
    expect(two({ onDuplicate: 'again' }).broken()).toEqual([]);
  });

  test('an answer that names a task nobody enqueued', () => {
    expect(new Story().put(0, 1, { messageId: 'm' }, 7).broken()).toEqual(['Q6']);
  });

  test('an answer that names a task whose window is over', () => {
    const story = new Story();
    story.settings.set('t', { ...story.settings.get('t')!, dedupWindowMs: 50 });
    story
      .put(0, 1, { messageId: 'm' })
      .lease(10, [{ nth: 1, messageId: 'm' }])
      .settle(20, 'ack', 'lease-1-10');
    expect(story.put(500, 2, { messageId: 'm' }, 1).broken()).toEqual(['Q6']);
  });
});

describe('Q7 and Q8: order', () => {
  test('a lower priority while a higher one was ready', () => {
    const story = new Story()
      .put(0, 1, { priority: 9 })
      .put(0, 2, { priority: 3 })
      .lease(3_000, [{ nth: 2, priority: 3 }]);
    story
      .settle(3_010, 'ack', 'lease-2-3000')
      .lease(4_000, [{ nth: 1, priority: 9 }])
      .settle(4_010, 'ack', 'lease-1-4000');
    expect(story.look({ 1: 'done', 2: 'done' }).broken()).toEqual(['Q7']);
  });

  test('a topic that is passed by again and again, not one whose higher tasks have their turn', () => {
    const story = (isServed: boolean): Story => {
      const told = new Story().put(0, 1, { priority: 0 });
      told.settings.set('u', told.settings.get('t')!);
      for (let nth = 0; nth < 12; nth++) {
        const token = 100 + nth;
        const own = `01HF7YAT0000000000000000${nth + 10}.5.${nth}`;
        const topic = isServed && nth % 4 === 0 ? 't' : 'u';
        told.call(
          'enqueue',
          2,
          { topic, tasks: [{ token, input: { payload: { t: token } } }] },
          ok([{ id: own, deduplicated: false }]),
        );
        told.lease(2_000 + nth * 10, [{ nth: token, topic, id: own }]);
      }
      return told.lease(4_000, [{ nth: 1, priority: 0 }]);
    };
    expect(story(false).broken()).toEqual(['Q8']);
    expect(story(true).broken()).toEqual([]);
  });

  test('more than was asked for', () => {
    const story = new Story().put(0, 1).put(0, 2);
    expect(story.lease(10, [{ nth: 1 }, { nth: 2 }], { max: 1 }).broken()).toEqual(['lease']);
    const other = new Story().put(0, 1).lease(10, [{ nth: 1 }], { topics: ['u', 'x*'] });
    expect(other.broken()).toEqual(['lease']);
    const many = new Story()
      .put(0, 1)
      .put(0, 2)
      .lease(10, [{ nth: 1 }, { nth: 2 }], { max: 5, maxPerTopic: 1 });
    expect(many.broken()).toEqual(['lease']);
  });
});

describe('Q9: limits', () => {
  const limited = (patch: Partial<TopicSettings>): Story => {
    const story = new Story().put(0, 1).put(0, 2);
    story.settings.set('t', { ...story.settings.get('t')!, ...patch });
    return story;
  };
  test('more in flight than allowed', () => {
    expect(
      limited({ maxInFlight: 1 })
        .lease(10, [{ nth: 1 }])
        .lease(20, [{ nth: 2 }])
        .broken(),
    ).toEqual(['Q9']);
    expect(
      limited({ maxInFlight: 1 })
        .lease(10, [{ nth: 1 }, { nth: 2 }], { max: 2 })
        .broken(),
    ).toEqual(['Q9']);
  });
  test('two leases closer than allowed', () => {
    expect(
      limited({ minIntervalMs: 50 })
        .lease(10, [{ nth: 1 }])
        .lease(20, [{ nth: 2 }])
        .broken(),
    ).toEqual(['Q9']);
  });
  test('a lease before the cooldown is over', () => {
    const story = limited({ cooldownMs: 50 })
      .lease(10, [{ nth: 1 }])
      .settle(20, 'ack', 'lease-1-10')
      .lease(30, [{ nth: 2 }]);
    expect(story.broken()).toEqual(['Q9']);
  });
  test('more than the rate', () => {
    const story = limited({ rate: { tasks: 1, perMs: 1_000, burst: 1 } });
    expect(
      story
        .lease(10, [{ nth: 1 }])
        .lease(20, [{ nth: 2 }])
        .broken(),
    ).toEqual(['Q9']);
  });
  test('a lease of a paused topic', () => {
    const story = limited({});
    story.call('configure', 10, { topic: 't', patch: { paused: true } }, ok(null)).lease(20, [{ nth: 1 }]);
    expect(story.broken()).toEqual(['Q9']);
  });
  test('a lease is held to what was set last, of two calls at the same time to either', () => {
    const story = (secondAt: number): Story =>
      limited({})
        .call('configure', 10, { topic: 't', patch: { minIntervalMs: null } }, ok(null), 50)
        .call('configure', secondAt, { topic: 't', patch: { minIntervalMs: 50 } }, ok(null))
        .lease(100, [{ nth: 1 }])
        .lease(110, [{ nth: 2 }]);
    expect(story(70).broken()).toEqual(['Q9']);
    expect(story(20).broken()).toEqual([]);
  });
  test('a lease is not held to a limit that came later', () => {
    const story = limited({})
      .lease(10, [{ nth: 1 }])
      .lease(20, [{ nth: 2 }]);
    expect(story.call('configure', 30, { topic: 't', patch: { maxInFlight: 1 } }, ok(null)).broken()).toEqual([]);
  });
});

describe('times and counts', () => {
  test('a delayed task that comes early', () => {
    expect(
      new Story()
        .put(0, 1, { delayMs: 500 })
        .lease(100, [{ nth: 1 }])
        .broken(),
    ).toEqual(['early']);
  });
  test('one given back that comes early', () => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .settle(20, 'nack', 'lease-1-10', { delayMs: 500 });
    expect(story.lease(100, [{ nth: 1, attempt: 2 }]).broken()).toEqual(['early']);
  });
  test.each([
    ['not counted', 1],
    ['counted twice', 3],
  ])('an attempt that is %s', (_, attempt) => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .settle(20, 'nack', 'lease-1-10', { delayMs: 0 });
    expect(story.lease(100, [{ nth: 1, attempt }]).broken()).toEqual(['attempts']);
  });
  test('a release that counts', () => {
    const story = new Story()
      .put(0, 1)
      .lease(10, [{ nth: 1 }])
      .settle(20, 'release', 'lease-1-10');
    expect(story.lease(100, [{ nth: 1, attempt: 2 }]).broken()).toEqual(['attempts']);
  });
  test('more attempts than a task has', () => {
    expect(
      new Story()
        .put(0, 1, { maxAttempts: 1 })
        .lease(10, [{ nth: 1, attempt: 2 }])
        .broken(),
    ).toContain('attempts');
  });
  test('drained, and then something is handed out', () => {
    const story = new Story().put(0, 1);
    story.call('drained', 10, { topic: 't', timeoutMs: 0 }, ok(true)).lease(20, [{ nth: 1 }]);
    expect(story.broken()).toEqual(['drained']);
  });
  test('counts that do not return to nothing', () => {
    const story = whole();
    story.call('counts', 100_000, { topic: 't' }, ok({ ready: 0, delayed: 0, leased: 1, dead: 0 }));
    expect(story.broken()).toEqual(['counts']);
  });
  test('counts of a task that nobody was told of, and that was found only when they were asked for', () => {
    const sent = { token: 1, input: { payload: { t: 1 } } };
    const story = new Story().call('enqueue', 0, { topic: 't', tasks: [sent] }, lost);
    story.call('counts', 100_000, { topic: 't' }, ok({ ready: 1, delayed: 0, leased: 0, dead: 0 }), 0.5);
    expect(story.look({ 1: 'ready' }).broken()).toEqual([]);
  });
});

describe('a schedule that fires', () => {
  const MADE_AT = EPOCH + 17;
  /** As it tells of itself. */
  const told = (changed: Partial<ScheduleInfo>): ScheduleInfo => ({
    name: 's',
    topic: 't',
    pattern: '* * * * * *',
    timeZone: 'UTC',
    priority: null,
    ttlMs: null,
    maxAttempts: null,
    catchUpMs: 60_000,
    createdAt: MADE_AT,
    updatedAt: MADE_AT,
    firedUpTo: MADE_AT,
    nextAt: null,
    lastFiredFor: null,
    lastTask: null,
    fired: 0,
    missed: 0,
    refusal: null,
    payload: 1,
    metadata: {},
    next: [],
    ...changed,
  });
  /** It hands out the firings of these times, by their ids, is looked at 3.5 s behind its making, and deleted. */
  const story = (firings: Readonly<Record<number, number>>, changed: Partial<ScheduleInfo> = {}): Story => {
    const all = new Story();
    all.schedule = { topic: 't', periodMs: 1_000 };
    const input = { topic: 't', pattern: '* * * * * *', payload: 1 };
    all.call('setSchedule', 17, { name: 's', input }, ok(told({})));
    const tasks = Object.entries(firings).map(([nth, ms]) => ({
      nth: Number(nth),
      messageId: `fired ${nth}`,
      metadata: { 'ebbmark-fired-for': new Date(EPOCH + ms).toISOString() },
    }));
    all.lease(3_400, tasks, { max: 10 });
    for (const { nth } of tasks) all.settle(3_450, 'ack', `lease-${nth}-3400`);
    all.call('schedule', 3_500, { name: 's' }, ok(told({ firedUpTo: EPOCH + 3_000, fired: 3, ...changed })));
    return all.call('deleteSchedule', 3_600, { name: 's' }, ok(null));
  };

  test('each time once, passes', () => {
    expect(story({ 1: 1_000, 2: 2_000, 3: 3_000 }).broken()).toEqual([]);
  });
  test('one more between the last look and its end, passes', () => {
    expect(story({ 1: 1_000, 2: 2_000, 3: 3_000 }, { firedUpTo: EPOCH + 2_000, fired: 2 }).broken()).toEqual([]);
  });
  test('one time twice', () => {
    expect(story({ 1: 1_000, 2: 2_000, 3: 3_000, 4: 2_000 }).broken()).toEqual(['Q6 schedule']);
  });
  test('one time never', () => {
    expect(story({ 1: 1_000, 3: 3_000 }).broken()).toEqual(['Q1 schedule']);
  });
  test('a time that is none of its own', () => {
    expect(story({ 1: 1_000, 2: 2_000, 3: 3_000, 4: 2_500 }).broken()).toEqual(['Q1 schedule']);
  });
  test('before it was made', () => {
    expect(story({ 1: 1_000, 2: 2_000, 3: 3_000, 4: 0 }).broken()).toEqual(['Q1 schedule']);
  });
  test('after it was deleted', () => {
    expect(story({ 1: 1_000, 2: 2_000, 3: 3_000, 4: 4_000 }).broken()).toEqual(['Q1 schedule']);
  });
  test.each([{ fired: 4 }, { fired: 2 }, { missed: 1 }])('and counts wrongly: %j', (changed) => {
    expect(story({ 1: 1_000, 2: 2_000, 3: 3_000 }, changed).broken()).toEqual(['Q1 schedule']);
  });
});
