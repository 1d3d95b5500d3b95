/** API keys on a store whose answers the test holds back, loses or refuses, and on a clock that it moves. */
import { describe, expect, it } from 'vitest';
import { KEY_KEPT_MS, KEYS } from '../../src/core/bounds.ts';
import { deferred } from '../../src/queue/deferred.ts';
import { type KeyInput, Keyring } from '../../src/queue/keys.ts';
import { type Carrier, directly, MemoryStore } from '../../src/store/memory/store.ts';
import { Tables } from '../../src/store/memory/tables.ts';
import { EMBEDDED_META, StoreUnavailableError, UNKNOWN } from '../../src/store/store.ts';
import { apiKey } from '../conformance/keys.ts';
import { manualEnvironment } from '../support/manual-environment.ts';

const REVOKED_BY_MS = 5_000;
const OUTAGE_MS = 300_000;

const outOfReach: Carrier = () => Promise.reject(new StoreUnavailableError('gone'));
const never: Carrier = () => new Promise(() => {});

function newWorld() {
  const env = manualEnvironment();
  const tables = new Tables(EMBEDDED_META, env.now);
  return {
    env,
    tables,
    /** A server's keys, and the way of its calls to the store. */
    server() {
      const way = { carrier: directly, reads: 0 };
      const carrier: Carrier = (verb, run, about) => {
        way.reads++;
        return way.carrier(verb, run, about);
      };
      const store = new MemoryStore(tables, { carrier, now: env.now });
      return { way, keys: new Keyring(() => store, env) };
    },
  };
}

const INPUT: KeyInput = { name: 'mailer', roles: ['consume'] };

describe('a key', () => {
  it('is told once, and kept as a hash', async () => {
    const { tables, server } = newWorld();
    const { keys } = server();
    const made = await keys.createKey({
      ...INPUT,
      roles: ['admin', 'produce'],
      description: 'of the shop',
      prefixes: ['mail/a', 'mail/', 'b'],
      rate: { perSecond: 5 },
      ttlMs: 1_000,
    });
    expect(made).toEqual({
      id: expect.stringMatching(/^[0-9a-f]{12}$/),
      key: expect.stringMatching(new RegExp(`^ebb_${made.id}_[0-9a-f]{72}$`)),
      name: 'mailer',
      description: 'of the shop',
      roles: ['produce', 'admin'],
      prefixes: ['b', 'mail/'],
      rate: { perSecond: 5, burst: 5 },
      createdAt: 1_700_000_000_000,
      expiresAt: 1_700_000_001_000,
      revokedAt: null,
    });
    const { key, ...listed } = made;
    expect(await keys.listKeys()).toEqual({ keys: [listed] });
    expect(await keys.check(key)).toMatchObject(listed);
    expect(JSON.stringify(tables.keys)).not.toContain(key.slice(-72, -8));
  });

  it('is good until it expires, by the clock of the store', async () => {
    const { env, server } = newWorld();
    const { keys } = server();
    const { key } = await keys.createKey({ ...INPUT, ttlMs: 1_000 });
    await env.advance(999);
    expect(await keys.check(key)).not.toBeNull();
    expect(await keys.hasAny()).toBe(true);
    await env.advance(1);
    expect(await keys.check(key)).toBeNull();
    expect(await keys.hasAny()).toBe(false);
  });

  it('is none with another secret, another id, or mistyped', async () => {
    const { keys } = newWorld().server();
    const [one, two] = [await keys.createKey(INPUT), await keys.createKey(INPUT)];
    const other = two.key.replace(two.id, one.id);
    for (const text of ['', one.id, other, `${one.key}0`, one.key.slice(1)]) expect(await keys.check(text)).toBeNull();
  });

  it('is revoked once: the time of the first stays', async () => {
    const { env, server } = newWorld();
    const { keys } = server();
    const { id, key } = await keys.createKey(INPUT);
    const revoked = await keys.revokeKey(id);
    expect(revoked).toMatchObject({ id, revokedAt: env.now() });
    expect(await keys.check(key)).toBeNull();
    await env.advance(10);
    expect(await keys.revokeKey(id)).toEqual(revoked);
    await expect(keys.revokeKey('nobody')).rejects.toMatchObject({ code: 'key-not-found' });
  });

  it.each([
    [{ ...INPUT, name: '' }, '/name'],
    [{ ...INPUT, name: 'ü'.repeat(65) }, '/name'],
    [{ ...INPUT, name: 'a\u001b[31m' }, '/name'],
    [{ ...INPUT, description: '\ud800' }, '/description'],
    [{ ...INPUT, roles: [] }, '/roles'],
    [{ ...INPUT, roles: ['root'] }, '/roles'],
    [{ ...INPUT, roles: ['admin', 'admin'] }, '/roles'],
    [{ ...INPUT, prefixes: [] }, '/prefixes'],
    [{ ...INPUT, prefixes: Array.from({ length: 101 }, (_, n) => `p${n}`) }, '/prefixes'],
    [{ ...INPUT, prefixes: ['a', 'b*'] }, '/prefixes/1'],
    [{ ...INPUT, prefixes: [''] }, '/prefixes/0'],
    [{ ...INPUT, rate: { perSecond: 0 } }, '/rate/perSecond'],
    [{ ...INPUT, rate: { perSecond: 1, burst: 0.5 } }, '/rate/burst'],
    [{ ...INPUT, rate: { perSecond: 1, perMinute: 1 } }, '/rate/perMinute'],
    [{ ...INPUT, ttlMs: 0 }, '/ttlMs'],
    [{ ...INPUT, role: 'admin' }, '/role'],
  ])('is refused where it breaks a rule: %j', async (input, path) => {
    const { keys } = newWorld().server();
    await expect(keys.createKey(input as KeyInput)).rejects.toMatchObject({
      issues: [{ path, message: expect.stringContaining('for example: ') }],
    });
    expect(await keys.listKeys()).toEqual({ keys: [] });
  });
});

describe('lists', () => {
  it('go by the time keys were made, page by page', async () => {
    const { env, server } = newWorld();
    const { keys } = server();
    const ids: string[] = [];
    for (let nth = 0; nth < 5; nth++) {
      ids.push((await keys.createKey(INPUT)).id);
      await env.advance(1);
    }
    const listed: string[] = [];
    for (let after: string | undefined; ; ) {
      const page = await keys.listKeys({ limit: 2, ...(after && { after }) });
      listed.push(...page.keys.map(({ id }) => id));
      after = page.after;
      if (after === undefined) break;
    }
    expect(listed).toEqual(ids);
    await expect(keys.listKeys({ after: 'nobody' })).rejects.toMatchObject({ code: 'key-not-found' });
    await expect(keys.listKeys({ limit: 0 })).rejects.toMatchObject({ code: 'invalid-input' });
  });

  it('forget a key a month after its end, with the next that is made', async () => {
    const { env, tables, server } = newWorld();
    const { keys } = server();
    const revoked = await keys.createKey(INPUT);
    await keys.createKey({ ...INPUT, name: 'expires', ttlMs: 1 });
    await keys.createKey({ ...INPUT, name: 'stays' });
    await keys.revokeKey(revoked.id);
    await env.advance(KEY_KEPT_MS);
    await keys.createKey({ ...INPUT, name: 'new' });
    expect(tables.keys.keys.map(({ name }) => name)).toEqual(['expires', 'stays', 'new']);
    await env.advance(1);
    await keys.createKey({ ...INPUT, name: 'newer' });
    expect(tables.keys.keys.map(({ name }) => name)).toEqual(['stays', 'new', 'newer']);
  });

  it('hold so many, and no more; those that ended make room', async () => {
    const { tables, server } = newWorld();
    const { keys } = server();
    const rows = Array.from({ length: KEYS }, () => apiKey({ revokedAt: null, expiresAt: null }));
    tables.keys = { version: 1, keys: rows };
    await expect(keys.createKey(INPUT)).rejects.toMatchObject({ code: 'too-many-keys' });
    await keys.revokeKey(rows[7]!.id);
    await keys.createKey(INPUT);
    await expect(keys.createKey(INPUT)).rejects.toMatchObject({ code: 'too-many-keys' });
    expect(tables.keys.keys).toHaveLength(KEYS);
  });
});

describe('several servers', () => {
  it('go by a revocation at once where it was made, and elsewhere within five seconds', async () => {
    const { env, server } = newWorld();
    const [here, there] = [server(), server()];
    const { id, key } = await here.keys.createKey(INPUT);
    expect(await there.keys.check(key)).not.toBeNull();
    await here.keys.revokeKey(id);
    expect(await here.keys.check(key)).toBeNull();
    // Called all the time: it looks every two seconds, and nobody waits for that.
    let good = 0;
    for (let ms = 0; ms < REVOKED_BY_MS; ms += 100) {
      if ((await there.keys.check(key)) !== null) good = ms;
      await env.advance(100);
    }
    expect(good).toBeLessThanOrEqual(2_000);
  });

  it('go by it after five seconds also where nobody called before', async () => {
    const { env, server } = newWorld();
    const [here, there] = [server(), server()];
    const { id, key } = await here.keys.createKey(INPUT);
    await there.keys.check(key);
    await here.keys.revokeKey(id);
    await env.advance(REVOKED_BY_MS);
    expect(await there.keys.check(key)).toBeNull();
  });

  it('know of a new key when they are called two seconds later', async () => {
    const { env, server } = newWorld();
    const [here, there] = [server(), server()];
    await there.keys.check('');
    const { key } = await here.keys.createKey(INPUT);
    await env.advance(REVOKED_BY_MS);
    expect(await there.keys.check(key)).not.toBeNull();
  });

  it('make and revoke keys at the same time, and all of it counts', async () => {
    const { tables, server } = newWorld();
    const servers = [server(), server(), server()];
    const old = await servers[0]!.keys.createKey(INPUT);
    const made = await Promise.all([
      ...servers.flatMap(({ keys }) => [keys.createKey(INPUT), keys.createKey(INPUT)]),
      ...servers.map(({ keys }) => keys.revokeKey(old.id)),
    ]);
    expect(tables.keys.keys.map(({ id }) => id).sort()).toEqual([...new Set(made.map(({ id }) => id))].sort());
    for (const { keys } of servers) expect(await keys.check(old.key)).toBeNull();
  });

  it('are not asked again for each call: keys are held in memory', async () => {
    const { env, server } = newWorld();
    const { keys, way } = server();
    const { key } = await keys.createKey(INPUT);
    way.reads = 0;
    for (let nth = 0; nth < 100; nth++) await Promise.all([keys.check(key), keys.check('ebb_x'), keys.check('')]);
    expect(way.reads).toBe(0);
    await env.advance(2_000);
    await Promise.all(Array.from({ length: 100 }, () => keys.check(key)));
    expect(way.reads).toBe(1);
  });

  it('are not set back by an answer that comes late', async () => {
    const { env, server } = newWorld();
    const { keys, way } = server();
    const { id, key } = await keys.createKey(INPUT);
    await env.advance(REVOKED_BY_MS);
    // What the store says now, but told later.
    const told = deferred();
    way.carrier = async (_verb, run) => {
      const answer = run();
      await told.promise;
      return answer;
    };
    const early = keys.check('');
    await env.advance(0);
    way.carrier = directly;
    await keys.revokeKey(id);
    told.resolve();
    await early;
    expect(await keys.check(key)).toBeNull();
  });
});

describe('trouble with the store', () => {
  it.each([
    ['that cannot be reached', outOfReach],
    ['that does not answer', never],
  ])('%s: keys go on for five minutes, then nobody is let in, until it is back', async (_what, trouble) => {
    const { env, server } = newWorld();
    const { keys, way } = server();
    const { key } = await keys.createKey(INPUT);
    const check = async () => {
      const checking = keys.check(key).then(
        (row) => (row === null ? 'refused' : 'good'),
        (error: { code: string }) => error.code,
      );
      await env.advance(2_000);
      return checking;
    };
    way.carrier = trouble;
    const from = env.monotonic();
    const answers = new Set<string>();
    while (env.monotonic() - from < OUTAGE_MS - 4_000) answers.add(await check());
    expect([...answers]).toEqual(['good']);
    await env.advance(4_000);
    expect(await check()).toBe('store-unavailable');
    expect(await check()).toBe('store-unavailable');
    if (trouble === never) return;
    way.carrier = directly;
    expect(await check()).toBe('good');
  });

  it('at the start: nobody can say who may come in', async () => {
    const { server } = newWorld();
    const { keys, way } = server();
    way.carrier = outOfReach;
    await expect(keys.check('')).rejects.toMatchObject({ code: 'store-unavailable' });
    await expect(keys.hasAny()).rejects.toMatchObject({ code: 'store-unavailable' });
  });

  it.each([
    ['was applied', true],
    ['was not', false],
  ])('a write in doubt that %s makes one key', async (_how, isApplied) => {
    const { env, tables, server } = newWorld();
    const { keys, way } = server();
    let doubts = 1;
    way.carrier = async (verb, run) => {
      if (verb !== 'conditional' || doubts-- <= 0) return run();
      if (isApplied) run();
      return UNKNOWN as never;
    };
    const making = keys.createKey(INPUT);
    await env.advance(1_000);
    const { id, key } = await making;
    expect(tables.keys.keys).toMatchObject([{ id }]);
    expect(await keys.check(key)).not.toBeNull();
  });
});
