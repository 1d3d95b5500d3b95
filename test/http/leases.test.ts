import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectRaw, eventually, expectProblem, startServer, type TestServer } from './support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.close());

describe('POST /v1/leases', () => {
  it('takes the highest priority first, and says everything a worker needs', async () => {
    await server.enqueue(
      'a',
      { payload: 'low', priority: 1 },
      { payload: 'high', priority: 9, messageId: 'h', metadata: { k: 'v' } },
    );
    const [high, low] = await server.lease('a', { max: 2, leaseMs: 10_000 });
    expect(high).toEqual({
      topic: 'a',
      id: expect.any(String),
      messageId: 'h',
      payload: 'high',
      metadata: { k: 'v' },
      priority: 9,
      attempt: 1,
      progress: null,
      enqueuedAt: expect.any(Number),
      leaseId: expect.any(String),
      leaseUntil: expect.any(Number),
    });
    expect(high.leaseUntil - Date.now()).toBeGreaterThan(5_000);
    expect(low.payload).toBe('low');
  });

  it('goes by prefix, by tiers and by topic', async () => {
    await server.enqueue('p/1', { payload: 1, priority: 2 }, { payload: 2, priority: 3 });
    await server.enqueue('p/2', { payload: 3, priority: 2 });
    const some = await server.lease('p/*', { max: 10, maxPerTopic: 1, priorities: [2] });
    expect(some.map((task) => task.payload).sort()).toEqual([1, 3]);
    expect((await server.lease('p/*', { max: 10 })).map((task) => task.payload)).toEqual([2]);
  });

  it('takes no body for all topics', async () => {
    await server.enqueue('any', { payload: 'any' });
    const answer = await server.call('POST', '/v1/leases');
    expect(answer.json.tasks).toHaveLength(1);
    await server.settle({ release: [{ leaseId: answer.json.tasks[0].leaseId }] });
  });

  it('wakes a long poll when a task comes', async () => {
    const waiting = server.lease('wake', { waitMs: 30_000 });
    await eventually(() => server.queue.status().waiting === 1);
    await server.enqueue('wake', { payload: 'up' });
    expect(await waiting).toMatchObject([{ payload: 'up' }]);
  });

  it('answers empty when the wait is over', async () => {
    expect(await server.lease('never', { waitMs: 20 })).toEqual([]);
  });

  it('leases nothing for a caller who has gone', async () => {
    const gone = new AbortController();
    const call = server.call('POST', '/v1/leases', { body: { topics: ['gone'], waitMs: 30_000 }, signal: gone.signal });
    await eventually(() => server.queue.status().waiting === 1);
    gone.abort();
    await expect(call).rejects.toThrow();
    await eventually(() => server.queue.status().waiting === 0);
    await server.enqueue('gone', { payload: 1 });
    expect(await server.lease('gone')).toMatchObject([{ attempt: 1 }]);
  });

  it('leases nothing for a pipelined caller who has gone', async () => {
    const raw = await connectRaw(server.port);
    const body = JSON.stringify({ topics: ['gone2'], waitMs: 30_000 });
    const request = `POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    raw.socket.write(request + request);
    await eventually(() => server.queue.status().waiting === 2);
    raw.socket.destroy();
    await eventually(() => server.queue.status().waiting === 0);
    await server.enqueue('gone2', { payload: 1 });
    expect(await server.lease('gone2')).toMatchObject([{ attempt: 1 }]);
  });

  it('gives back at once what an answer could not bring to its caller', async () => {
    await server.enqueue('lost', { payload: 1 });
    const raw = await connectRaw(server.port);
    const lease = (body: string) =>
      `POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    // The answer to the second waits behind that to the first, which waits for a task.
    raw.socket.write(lease('{"topics":["blocked"],"waitMs":30000}') + lease('{"topics":["lost"]}'));
    await eventually(async () => (await server.queue.topic('lost')).counts.leased === 1);
    raw.socket.destroy();
    await eventually(async () => (await server.queue.topic('lost')).counts.leased === 0);
    expect(await server.lease('lost', { waitMs: 5_000 })).toMatchObject([{ attempt: 1 }]);
  });
});

describe('POST /v1/leases/settle', () => {
  it('acks, nacks, extends, saves and releases in one call', async () => {
    await server.enqueue('s1', ...Array.from({ length: 5 }, (_, payload) => ({ payload })));
    const tasks = await server.lease('s1', { max: 5, leaseMs: 5_000 });
    const [a, b, c, d, e] = tasks.map((task) => ({ leaseId: task.leaseId }));
    const answer = await server.settle({
      ack: [{ ...a, result: 'r' }],
      nack: [{ ...b, delayMs: 3_600_000, reason: 'x'.repeat(5000) }],
      extend: [{ ...c, leaseMs: 600_000 }],
      progress: [{ ...d, position: { at: 7 } }],
      release: [e],
    });
    expect(answer.json).toEqual({
      ack: [{ ...a, ok: true }],
      nack: [{ ...b, ok: true }],
      extend: [{ ...c, ok: true, leaseUntil: expect.any(Number) }],
      progress: [expect.objectContaining({ ...d, ok: true })],
      release: [{ ...e, ok: true }],
    });
    expect(answer.json.extend[0].leaseUntil - Date.now()).toBeGreaterThan(500_000);
    const [again] = await server.lease('s1', { waitMs: 5_000 });
    expect(again).toMatchObject({ payload: 4, attempt: 1 });
    await server.settle({ release: [d] });
    expect(await server.lease('s1', { waitMs: 5_000 })).toMatchObject([{ payload: 3, progress: { at: 7 } }]);
  });

  it('answers a repeated ack with ok, and everything else on a settled lease with lease-lost', async () => {
    await server.enqueue('s2', { payload: 1 });
    const [{ leaseId }] = await server.lease('s2');
    for (let i = 0; i < 2; i++) {
      expect((await server.settle({ ack: [{ leaseId }] })).json.ack).toEqual([{ leaseId, ok: true }]);
    }
    const late = await server.settle({
      nack: [{ leaseId }],
      extend: [{ leaseId, leaseMs: 1000 }],
      progress: [{ leaseId, position: 1 }],
      release: [{ leaseId }],
    });
    expect(late.status).toBe(200);
    for (const list of ['nack', 'extend', 'progress', 'release']) {
      expect(late.json[list], list).toMatchObject([{ leaseId, ok: false, code: 'lease-lost' }]);
    }
  });

  it('refuses stale and unknown leases one by one', async () => {
    await server.enqueue('s3', { payload: 1 }, { payload: 2 });
    const [first, second] = await server.lease('s3', { max: 2 });
    await server.settle({ nack: [{ leaseId: first.leaseId, delayMs: 0 }] });
    const leaseIds = [
      first.leaseId,
      'garbage',
      '😀',
      'A'.repeat(22),
      `${'A'.repeat(22)}.5.0.s3`,
      `${'A'.repeat(22)}.5.99999.none`,
      second.leaseId,
    ];
    const answer = await server.settle({ ack: leaseIds.map((leaseId) => ({ leaseId })) });
    expect(answer.status).toBe(200);
    expect(answer.json.ack.map((item: { leaseId: string }) => item.leaseId)).toEqual(leaseIds);
    expect(answer.json.ack.map((item: { ok: boolean; code?: string }) => item.code ?? item.ok)).toEqual([
      'lease-lost',
      'lease-invalid',
      'lease-invalid',
      'lease-invalid',
      'lease-lost',
      'lease-lost',
      true,
    ]);
  });

  it('answers empty lists to an empty call', async () => {
    const answer = await server.settle({});
    expect(answer.json).toEqual({ ack: [], nack: [], extend: [], progress: [], release: [] });
  });

  it('refuses a result that is too large, and keeps the lease', async () => {
    await server.enqueue('s4', { payload: 1 });
    const [{ leaseId }] = await server.lease('s4');
    const large = await server.settle({ ack: [{ leaseId, result: 'x'.repeat(300 * 1024) }] });
    expect(large.json.ack).toMatchObject([{ ok: false, code: 'result-too-large' }]);
    expect((await server.settle({ ack: [{ leaseId, result: 'x' }] })).json.ack).toMatchObject([{ ok: true }]);
  });

  it.each([
    [{ ack: {} }],
    [{ ack: [{}] }],
    [{ ack: [{ leaseId: 1 }] }],
    [{ ack: [{ leaseId: '' }] }],
    [{ ack: [{ leaseId: 'x', more: 1 }] }],
    [{ extend: [{ leaseId: 'x' }] }],
    [{ extend: [{ leaseId: 'x', leaseMs: 0 }] }],
    [{ progress: [{ leaseId: 'x' }] }],
    [{ nack: [{ leaseId: 'x', delayMs: -1 }] }],
    [{ other: [] }],
  ])('refuses the malformed call %j', async (body) => expectProblem(await server.settle(body), 400, 'invalid-input'));

  it('refuses more than a thousand of a kind', async () => {
    const ack = Array.from({ length: 1001 }, () => ({ leaseId: 'x' }));
    expectProblem(await server.settle({ ack }), 400, 'invalid-input');
    expect((await server.settle({ ack: ack.slice(1) })).json.ack).toHaveLength(1000);
  });
});
