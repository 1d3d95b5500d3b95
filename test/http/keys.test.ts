/** Keys over HTTP: made, listed, revoked; rates; and what a key for some topics may do beyond one call. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RateLimits } from '../../src/http/rate-limits.ts';
import { type Answer, eventually, expectProblem, startServer, type TestServer, tasksPath } from './support/server.ts';

let server: TestServer;
let admin: string;
beforeAll(async () => {
  server = await startServer({ needsKeys: true });
  admin = (await server.newKey()).key;
});
afterAll(() => server.close());

const send = (method: string, path: string, key: string, body?: object): Promise<Answer> =>
  server.call(method, path, { body, headers: { authorization: `Bearer ${key}` } });

describe('/v1/admin/keys', () => {
  it('makes a key, tells it once, lists it without, and revokes it', async () => {
    const input = { name: 'mailer', roles: ['produce'], prefixes: ['mail/'], rate: { perSecond: 5 }, ttlMs: 60_000 };
    const made = await send('POST', '/v1/admin/keys', admin, input);
    expect(made).toMatchObject({ status: 201, headers: { 'cache-control': 'no-store' } });
    const { key, ...rest } = made.json;
    expect(rest).toMatchObject({ name: 'mailer', rate: { perSecond: 5, burst: 5 }, revokedAt: null });
    expect((await send('POST', tasksPath('mail/a'), key, { tasks: [{ payload: 1 }] })).status).toBe(201);

    const listed = await send('GET', '/v1/admin/keys?limit=1000', admin);
    expect(listed.json.keys).toContainEqual(rest);
    expect(listed.text).not.toMatch(/hash|seal|_[0-9a-f]{72}/);

    const revoked = await send('DELETE', `/v1/admin/keys/${rest.id}`, admin);
    expect(revoked).toMatchObject({ status: 200, json: { ...rest, revokedAt: expect.any(Number) } });
    expectProblem(await send('GET', '/v1/topics', key), 401, 'unauthenticated');
    expect((await send('DELETE', `/v1/admin/keys/${rest.id}`, admin)).json).toEqual(revoked.json);
    expectProblem(await send('DELETE', '/v1/admin/keys/nobody', admin), 404, 'key-not-found');
  });

  it.each([
    [{ roles: ['produce'] }],
    [{ name: 'x', roles: ['root'] }],
    [{ name: 'x', roles: [] }],
    [{ name: 'x', roles: ['produce'], prefixes: ['a*'] }],
    [{ name: 'x\n', roles: ['produce'] }],
    [{ name: 'x', roles: ['produce'], expires: 1 }],
  ])('refuses %j', async (input) => {
    expect((await send('POST', '/v1/admin/keys', admin, input)).status).toBe(400);
  });
});

describe('the rate of a key', () => {
  it('is a bucket of `burst`, refilled evenly', () => {
    const limits = new RateLimits();
    const key = { id: 'a', rate: { perSecond: 10, burst: 3 } };
    expect([0, 0, 0, 0].map((at) => limits.take(key, at))).toEqual([0, 0, 0, 100]);
    expect(limits.take(key, 60)).toBeCloseTo(40);
    expect([100, 100].map((at) => limits.take(key, at))).toEqual([0, 100]);
    expect([5_000, 5_000, 5_000, 5_000].map((at) => limits.take(key, at))).toEqual([0, 0, 0, 100]);
    expect(limits.take({ id: 'b', rate: { perSecond: 1, burst: 1 } }, 5_000)).toBe(0);
    expect(limits.take({ id: 'c', rate: null }, 5_000)).toBe(0);
  });

  it('lets exactly so many through, at any rate', () => {
    for (const perSecond of [1, 3, 7, 1_000, 999_983]) {
      const limits = new RateLimits();
      const key = { id: 'a', rate: { perSecond, burst: 5 } };
      let taken = 0;
      // Once as often as it may be, over a second, and all that is saved up at the start.
      for (let nth = 0; nth <= 5 * perSecond && nth < 100_000; nth++) {
        const at = 1e9 + (nth * 1000) / perSecond / 5;
        if (limits.take(key, at) === 0) taken++;
      }
      const steps = Math.min(5 * perSecond, 99_999);
      expect(taken).toBe(5 + Math.floor(steps / 5));
    }
  });

  it('over it: 429 with Retry-After, for this key alone', async () => {
    const { key } = await server.newKey({ rate: { perSecond: 1, burst: 2 } });
    const answers = [1, 2, 3].map(() => send('GET', '/v1/topics', key));
    const [first, second, third] = [await answers[0]!, await answers[1]!, await answers[2]!];
    expect([first.status, second.status, third.status].sort()).toEqual([200, 200, 429]);
    const over = [first, second, third].find(({ status }) => status === 429)!;
    expectProblem(over, 429, 'rate-limited');
    expect(over.headers['retry-after']).toBe('1');
    expect(over.json.detail).toContain('1 requests a second');
    expect((await send('GET', '/v1/topics', admin)).status).toBe(200);
    // What needs no key is not counted.
    expect((await send('GET', '/healthz', key)).status).toBe(200);
  });
});

describe('a key that is revoked while its call waits', () => {
  it('gets no task: it is given back', async () => {
    const { id, key } = await server.newKey({ roles: ['consume'], prefixes: ['wait/'] });
    const polling = send('POST', '/v1/leases', key, { waitMs: 60_000 });
    await eventually(() => server.queue.status().waiting === 1);
    await server.queue.keys.revokeKey(id);
    await server.queue.enqueue('wait/a', { payload: 1 });
    expectProblem(await polling, 401, 'unauthenticated');
    const tasks = await server.queue.lease({ topics: ['wait/a'], waitMs: 10_000 });
    expect(tasks).toMatchObject([{ topic: 'wait/a', attempt: 1 }]);
  });

  it('is not told what came of it', async () => {
    const { id, key } = await server.newKey({ roles: ['produce'] });
    const { id: task } = await server.queue.enqueue('result/a', { payload: 'secret' });
    const waiting = send('GET', `${tasksPath('result/a')}/${task}?waitMs=1100`, key);
    await send('GET', '/healthz', admin);
    await server.queue.keys.revokeKey(id);
    const answer = await waiting;
    expectProblem(answer, 401, 'unauthenticated');
    expect(answer.text).not.toContain('secret');
  });
});

describe('a key for some topics', () => {
  it('leases from its own alone, whatever it asks for', async () => {
    const { key } = await server.newKey({ prefixes: ['l/a', 'l/b/'] });
    for (const topic of ['l/a', 'l/ab', 'l/b', 'l/b/1', 'l/c']) await server.queue.enqueue(topic, { payload: topic });
    const ask = async (topics?: readonly string[]) => {
      const { json } = await send('POST', '/v1/leases', key, { max: 100, ...(topics && { topics }) });
      const names: string[] = json.tasks.map(({ topic }: { topic: string }) => topic);
      const release = json.tasks.map(({ leaseId }: { leaseId: string }) => ({ leaseId }));
      await send('POST', '/v1/leases/settle', key, { release });
      return names.sort();
    };
    expect(await ask()).toEqual(['l/a', 'l/ab', 'l/b/1']);
    expect(await ask(['*'])).toEqual(['l/a', 'l/ab', 'l/b/1']);
    expect(await ask(['l/*', 'l/c'])).toEqual(['l/a', 'l/ab', 'l/b/1']);
    expect(await ask(['l/b*'])).toEqual(['l/b/1']);
    expect(await ask(['l/ab', 'l/c', 'l/b'])).toEqual(['l/ab']);
    expect(await ask(['l/c', 'm*'])).toEqual([]);
  });

  it('is woken by its own topics alone', async () => {
    const { key } = await server.newKey({ prefixes: ['w/'] });
    const polling = send('POST', '/v1/leases', key, { waitMs: 60_000 });
    await eventually(() => server.queue.status().waiting === 1);
    await server.queue.enqueue('x/1', { payload: 1 });
    await server.queue.enqueue('w/1', { payload: 2 });
    expect((await polling).json.tasks).toMatchObject([{ topic: 'w/1' }]);
  });

  it('cannot settle, extend or save what others have leased, and they keep it', async () => {
    const { key } = await server.newKey({ prefixes: ['mine/'] });
    await server.queue.enqueue('theirs', [{ payload: 1 }, { payload: 2 }]);
    const [one, two] = await server.queue.lease({ topics: ['theirs'], max: 2 });
    const leaseId = one!.leaseId;
    const answer = await send('POST', '/v1/leases/settle', key, {
      ack: [{ leaseId }, { leaseId: 'nonsense' }, { leaseId: two!.leaseId }],
      nack: [{ leaseId, dead: true }],
      extend: [{ leaseId, leaseMs: 1_000 }],
      progress: [{ leaseId, position: 1 }],
      release: [{ leaseId }],
    });
    const refused = (token: string) => ({
      leaseId: token,
      ok: false,
      code: 'lease-invalid',
      detail: expect.any(String),
    });
    expect(answer.json).toEqual({
      ack: [refused(leaseId), refused('nonsense'), refused(two!.leaseId)],
      nack: [refused(leaseId)],
      extend: [refused(leaseId)],
      progress: [refused(leaseId)],
      release: [refused(leaseId)],
    });
    const settled = await server.queue.settle({ ack: [{ leaseId }, { leaseId: two!.leaseId }] });
    expect(settled.ack.map(({ ok }) => ok)).toEqual([true, true]);
  });

  it('cannot reach a delayed task of others by its id, in whichever topic it looks', async () => {
    const { key } = await server.newKey({ prefixes: ['mine/'] });
    const { id } = await server.queue.enqueue('theirs', { payload: 'secret', delayMs: 60_000 });
    for (const topic of ['theirs', 'mine/a']) {
      const answer = await send('GET', `${tasksPath(topic)}/${id}`, key);
      expectProblem(answer, 404, 'task-not-found');
      expect(answer.text).not.toContain('secret');
    }
    expectProblem(await send('DELETE', `${tasksPath('mine/a')}/${id}`, key), 404, 'task-not-found');
  });

  it('pages through its topics, whose cursors name no others', async () => {
    const { key } = await server.newKey({ prefixes: ['p/b', 'p/d'] });
    for (const topic of ['p/a', 'p/b1', 'p/b2', 'p/c', 'p/d1', 'p/e'])
      await server.queue.enqueue(topic, { payload: 1 });
    const pages: object[] = [];
    for (let after = ''; pages.length < 10; ) {
      const { json } = await send('GET', `/v1/topics?limit=1&after=${encodeURIComponent(after)}`, key);
      pages.push({ topics: json.topics.map(({ topic }: { topic: string }) => topic), after: json.after });
      if (json.after === undefined) break;
      after = json.after;
    }
    expect(pages).toEqual([
      { topics: ['p/b1'], after: 'p/b1' },
      { topics: ['p/b2'], after: 'p/b2' },
      { topics: ['p/d1'], after: undefined },
    ]);
  });

  it('takes no schedule’s name that is not its own, and does not see what others have put under one that is', async () => {
    const { key } = await server.newKey({ prefixes: ['s/'] });
    const schedule = { topic: 's/1', pattern: '0 0 1 1 *', payload: 1 };
    await server.queue.setSchedule('s/foreign', { ...schedule, topic: 'theirs' });
    const put = (name: string) => send('PUT', `/v1/schedules/${encodeURIComponent(name)}`, key, schedule);
    expectProblem(await put('taken-or-not'), 403, 'forbidden');
    expectProblem(await put('s/foreign'), 403, 'forbidden');
    expect((await put('s/mine')).status).toBe(200);
    expect((await send('GET', '/v1/schedules', key)).json.schedules).toMatchObject([{ name: 's/mine' }]);
    expectProblem(await send('GET', '/v1/schedules/s%2Fforeign', key), 404, 'schedule-not-found');
    expectProblem(await send('DELETE', '/v1/schedules/s%2Fforeign', key), 404, 'schedule-not-found');
    expect(await server.queue.schedule('s/foreign')).toMatchObject({ topic: 'theirs' });
  });
});
