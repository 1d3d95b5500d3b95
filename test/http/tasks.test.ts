import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectProblem, startServer, type TestServer, tasksPath } from './support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.close());

const taskPath = (topic: string, id: string) => `${tasksPath(topic)}/${encodeURIComponent(id)}`;

describe('POST /v1/topics/{topic}/tasks', () => {
  it('answers 201 with an id per task, in order', async () => {
    const answer = await server.post(tasksPath('e1'), { tasks: [{ payload: 1 }, { payload: null }, { payload: 'x' }] });
    expect(answer.status).toBe(201);
    expect(answer.json.tasks).toHaveLength(3);
    expect(new Set(answer.json.tasks.map((task: { id: string }) => task.id)).size).toBe(3);
    for (const task of answer.json.tasks) expect(task).toEqual({ id: expect.any(String), deduplicated: false });
  });

  const PAYLOADS: readonly unknown[] = [
    null,
    false,
    0,
    -1.5e300,
    '',
    'é 😀 \u0000 \u2028 " \\',
    [],
    {},
    [[[1]], { a: { b: [null] } }],
    { constructor: 1, toString: 2, hasOwnProperty: 3 },
    '\ud800',
  ];
  it.each(PAYLOADS.map((payload) => ({ payload })))('gives back the payload $payload', async ({ payload }) => {
    const [id] = await server.enqueue('e2', { payload });
    expect((await server.get(taskPath('e2', id!))).json.payload).toStrictEqual(payload);
    const [task] = await server.lease('e2');
    expect(task.payload).toStrictEqual(payload);
    await server.settle({ ack: [{ leaseId: task.leaseId }] });
  });

  it('takes bytes as payloadBase64, and gives them back so', async () => {
    const payloadBase64 = Buffer.from([0, 255, 1, 254, 0xc3]).toString('base64');
    const [id] = await server.enqueue('e3', { payloadBase64 }, { payload: 'text' });
    const info = (await server.get(taskPath('e3', id!))).json;
    expect(info.payloadBase64).toBe(payloadBase64);
    expect(info).not.toHaveProperty('payload');
    const [bytes, text] = await server.lease('e3', { max: 2 });
    expect(bytes.payloadBase64).toBe(payloadBase64);
    expect(bytes).not.toHaveProperty('payload');
    expect(text.payload).toBe('text');
    expect(text).not.toHaveProperty('payloadBase64');
  });

  it('keeps every field of a task', async () => {
    const metadata = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'line\nbreak': 'ü' };
    const [id] = await server.enqueue('e4', {
      payload: 1,
      priority: 9,
      messageId: 'm ü/?',
      ttlMs: 60_000,
      metadata,
      maxAttempts: 2,
    });
    const task = (await server.get(taskPath('e4', id!))).json;
    expect(task).toMatchObject({
      topic: 'e4',
      id,
      state: 'ready',
      messageId: 'm ü/?',
      priority: 9,
      metadata,
      maxAttempts: 2,
      attempt: 0,
    });
    expect(task.expiresAt - task.enqueuedAt).toBe(60_000);
  });

  it('gives a known message id its task, and says so', async () => {
    const [id] = await server.enqueue('e5', { payload: 1, messageId: 'a' });
    const again = await server.post(tasksPath('e5'), {
      tasks: [
        { payload: 2, messageId: 'a' },
        { payload: 3, messageId: 'b' },
      ],
    });
    expect(again.status).toBe(201);
    expect(again.json.tasks).toEqual([
      { id, deduplicated: true },
      { id: expect.any(String), deduplicated: false },
    ]);
  });

  it('makes a retry safe by an Idempotency-Key', async () => {
    const body = { tasks: [{ payload: 1 }, { payload: 2 }] };
    const first = await server.post(tasksPath('e6'), body, { 'idempotency-key': 'call-1' });
    const second = await server.post(tasksPath('e6'), body, { 'idempotency-key': 'call-1' });
    const other = await server.post(tasksPath('e6'), body, { 'idempotency-key': 'call-2' });
    const ids = (answer: typeof first) => answer.json.tasks.map((task: { id: string }) => task.id);
    expect(ids(second)).toEqual(ids(first));
    expect(second.json.tasks.every((task: { deduplicated: boolean }) => task.deduplicated)).toBe(true);
    expect(new Set([...ids(first), ...ids(other)]).size).toBe(4);
  });

  it('refuses one task and takes the others', async () => {
    const answer = await server.post(tasksPath('e7'), {
      tasks: [{ payload: 'x'.repeat(300 * 1024) }, { payload: 'small' }, { payload: 1, priority: 10 }],
    });
    expect(answer.status).toBe(201);
    expect(answer.json.tasks).toEqual([
      { id: null, deduplicated: false, code: 'payload-too-large', detail: expect.any(String) },
      { id: expect.any(String), deduplicated: false },
      { id: null, deduplicated: false, code: 'invalid-input', detail: expect.stringContaining('10') },
    ]);
  });

  it('refuses a call whose every task is refused, and names each', async () => {
    const invalid = await server.post(tasksPath('e10'), {
      tasks: [{ payload: 'x'.repeat(300 * 1024) }, { payload: 1, priority: 10 }],
    });
    expectProblem(invalid, 400, 'invalid-input');
    expect(invalid.json.detail).toMatch(/^All 2 tasks were refused; the first: /);
    expect(invalid.json.errors).toEqual([
      { path: '/tasks/0', code: 'payload-too-large', message: expect.any(String) },
      { path: '/tasks/1', code: 'invalid-input', message: expect.stringContaining('10') },
    ]);
    const large = { tasks: Array.from({ length: 25 }, () => ({ payload: 'x'.repeat(270_000) })) };
    const tooLarge = await server.post(tasksPath('e10'), large);
    expectProblem(tooLarge, 413, 'payload-too-large');
    expect(tooLarge.json.errors).toHaveLength(25);
    expectProblem(await server.get('/v1/topics/e10'), 404, 'topic-not-found');
  });

  it('delays a task by delayMs and by runAt', async () => {
    const [a, b] = await server.enqueue(
      'e8',
      { payload: 1, delayMs: 3_600_000 },
      { payload: 2, runAt: Date.now() + 7_200_000 },
    );
    for (const id of [a, b]) expect((await server.get(taskPath('e8', id!))).json).toMatchObject({ state: 'delayed' });
    expect(await server.lease('e8')).toEqual([]);
  });

  it('takes a thousand at once', async () => {
    const ids = await server.enqueue('e9', ...Array.from({ length: 1000 }, (_, payload) => ({ payload })));
    expect(new Set(ids).size).toBe(1000);
    expect((await server.get('/v1/topics/e9')).json.counts.ready).toBe(1000);
  });
});

describe('GET /v1/topics/{topic}/tasks/{id}', () => {
  it('shows attempts and the result', async () => {
    const [id] = await server.enqueue('g1', { payload: 1 });
    const [first] = await server.lease('g1', { worker: 'w1' });
    await server.settle({ nack: [{ leaseId: first.leaseId, delayMs: 0, reason: 'no luck' }] });
    const [second] = await server.lease('g1', { waitMs: 5000, worker: 'w2' });
    expect(second).toMatchObject({ id, attempt: 2 });
    await server.settle({ ack: [{ leaseId: second.leaseId, result: { status: 200 } }] });
    const task = (await server.get(taskPath('g1', id!))).json;
    expect(task).toMatchObject({ state: 'done', attempt: 2, result: { status: 200 } });
    expect(task.attempts).toMatchObject([
      { attempt: 1, worker: 'w1', outcome: 'nack', reason: 'no luck' },
      { attempt: 2, worker: 'w2', outcome: 'done' },
    ]);
  });

  it('waits for the result', async () => {
    const [id] = await server.enqueue('g2', { payload: 1 });
    const [leased] = await server.lease('g2');
    const waiting = server.get(`${taskPath('g2', id!)}?waitMs=20000`);
    await server.settle({ ack: [{ leaseId: leased.leaseId, result: 42 }] });
    expect((await waiting).json).toMatchObject({ state: 'done', result: 42 });
  });

  it('answers in any case when the wait is over', async () => {
    const [id] = await server.enqueue('g3', { payload: 1 });
    expect((await server.get(`${taskPath('g3', id!)}?waitMs=20`)).json.state).toBe('ready');
  });

  it.each(['nothing', '01ARZ3NDEKTSV4RRFFQ69G5FAV.5.0', '01ARZ3NDEKTSV4RRFFQ69G5FAV~YQ', '%00', 'a%2Fb', '..%2F..'])(
    'answers 404 for %s',
    async (id) => expectProblem(await server.get(`${tasksPath('g4')}/${id}`), 404, 'task-not-found'),
  );
});

describe('GET /v1/topics/{topic}/tasks', () => {
  it('lists by state, page by page', async () => {
    const ids = await server.enqueue('l1', ...Array.from({ length: 5 }, (_, payload) => ({ payload })));
    const [leased] = await server.lease('l1');
    await server.settle({ nack: [{ leaseId: leased.leaseId, dead: true, reason: 'broken' }] });
    const dead = await server.get(`${tasksPath('l1')}?state=dead`);
    expect(dead.json.tasks).toMatchObject([{ id: leased.id, state: 'dead', reason: 'broken' }]);

    const seen: string[] = [];
    let after: string | undefined;
    do {
      const page = await server.get(
        `${tasksPath('l1')}?state=ready&limit=2${after ? `&after=${encodeURIComponent(after)}` : ''}`,
      );
      expect(page.status, page.text).toBe(200);
      expect(page.json.tasks.length).toBeLessThanOrEqual(2);
      seen.push(...page.json.tasks.map((task: { id: string }) => task.id));
      after = page.json.after;
    } while (after !== undefined);
    expect(seen.sort()).toEqual(ids.filter((id) => id !== leased.id).sort());
  });

  it('finds the task of a message id', async () => {
    const [id] = await server.enqueue('l2', { payload: 1, messageId: 'https://example.org/?a=1&b=ü' });
    const found = await server.get(
      `${tasksPath('l2')}?messageId=${encodeURIComponent('https://example.org/?a=1&b=ü')}`,
    );
    expect(found.json.tasks).toMatchObject([{ id }]);
    expect((await server.get(`${tasksPath('l2')}?messageId=other`)).json).toEqual({ tasks: [] });
    expectProblem(await server.get(`${tasksPath('l2')}?messageId=a&state=done`), 400, 'invalid-input');
  });
});

describe('DELETE and PATCH /v1/topics/{topic}/tasks/{id}', () => {
  it('cancels a task that waits, once', async () => {
    const [id] = await server.enqueue('c1', { payload: 1 });
    const cancelled = await server.call('DELETE', `${taskPath('c1', id!)}?reason=not+wanted`);
    expect(cancelled.json).toMatchObject({ id, state: 'cancelled', reason: 'not wanted' });
    expect(await server.lease('c1')).toEqual([]);
    expectProblem(await server.call('DELETE', taskPath('c1', id!)), 409, 'task-settled');
    expectProblem(await server.call('DELETE', taskPath('c1', 'nothing')), 404, 'task-not-found');
  });

  it('cancels a leased task, whose worker then finds its lease lost', async () => {
    const [id] = await server.enqueue('c2', { payload: 1 });
    const [leased] = await server.lease('c2');
    expect((await server.call('DELETE', taskPath('c2', id!))).json.state).toBe('cancelled');
    const settled = await server.settle({ ack: [{ leaseId: leased.leaseId }] });
    expect(settled.json.ack).toMatchObject([{ ok: false, code: 'lease-lost' }]);
  });

  it('changes the priority and the due time of a task that waits', async () => {
    const [low, late] = await server.enqueue(
      'c3',
      { payload: 'low', priority: 1 },
      { payload: 'late', delayMs: 3_600_000 },
    );
    const raised = await server.call('PATCH', taskPath('c3', low!), { body: { priority: 9 } });
    expect(raised.json).toMatchObject({ id: low, priority: 9, state: 'ready' });
    const hurried = await server.call('PATCH', taskPath('c3', late!), { body: { delayMs: 0 } });
    expect(hurried.status, hurried.text).toBe(200);
    const tasks = [...(await server.lease('c3', { max: 2 }))];
    while (tasks.length < 2) tasks.push(...(await server.lease('c3', { waitMs: 5000 })));
    expect(tasks.map((task) => task.payload)).toEqual(['low', 'late']);
    expectProblem(await server.call('PATCH', taskPath('c3', low!), { body: { priority: 1 } }), 409, 'task-leased');
  });

  it('refuses an empty change, and both ways to say when', async () => {
    const [id] = await server.enqueue('c4', { payload: 1 });
    expectProblem(await server.call('PATCH', taskPath('c4', id!), { body: {} }), 400, 'invalid-input');
    const both = await server.call('PATCH', taskPath('c4', id!), { body: { delayMs: 1, runAt: 1 } });
    expectProblem(both, 400, 'invalid-input');
  });
});
