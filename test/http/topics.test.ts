import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SETTING_BOUNDS } from '../../src/core/bounds.ts';
import { expectProblem, startServer, type TestServer, topicPath } from './support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.close());

const admin = (topic: string, what: string) => `/v1/admin/topics/${encodeURIComponent(topic)}/${what}`;

describe('GET, PUT and DELETE /v1/topics/{topic}', () => {
  it('shows counts and the settings with their defaults', async () => {
    await server.enqueue('t1', { payload: 1 }, { payload: 2 }, { payload: 3, delayMs: 3_600_000 });
    await server.lease('t1');
    const answer = await server.get(topicPath('t1'));
    expect(answer.json).toMatchObject({
      topic: 't1',
      counts: { ready: 1, delayed: 1, leased: 1, dead: 0 },
      settings: { leaseMs: 30_000, maxAttempts: 5, maxInFlight: null, rate: null, paused: false },
    });
    expect(answer.json).not.toHaveProperty('drained');
  });

  it('answers 404 for a topic that never was', async () => {
    expectProblem(await server.get(topicPath('never')), 404, 'topic-not-found');
  });

  it('changes settings, keeps what is absent, and removes a limit by null', async () => {
    const change = {
      maxInFlight: 1,
      rate: { tasks: 100, perMs: 1000, burst: 100 },
      maxAttempts: 2,
      dedupWindowMs: null,
    };
    const first = await server.call('PUT', topicPath('t2'), { body: change });
    expect(first.status, first.text).toBe(200);
    expect(first.json.settings).toMatchObject({ ...change, leaseMs: 30_000 });
    await server.enqueue('t2', { payload: 1 }, { payload: 2 });
    expect(await server.lease('t2', { max: 2, waitMs: 5000 })).toHaveLength(1);
    const second = await server.call('PUT', topicPath('t2'), { body: { maxInFlight: null } });
    expect(second.json.settings).toMatchObject({ ...change, maxInFlight: null });
    expect(await server.lease('t2', { max: 2, waitMs: 5000 })).toHaveLength(1);
  });

  it.each([
    [{}],
    [{ leaseMs: null }],
    [{ leaseMs: 1 }],
    [{ leaseMs: '30000' }],
    [{ maxAttempts: 0 }],
    [{ maxAttempts: 1.5 }],
    [{ rate: { tasks: 1 } }],
    [{ rate: { tasks: 0, perMs: 1, burst: 1 } }],
    [{ rate: [] }],
    [{ retentionMs: 1000 }],
    [{ bands: [] }],
    [{ bands: [3, 2, 1] }],
    [{ bands: [1, 1] }],
    [{ buckets: 11 }],
    [{ paused: 'yes' }],
    [{ purgedAt: 1 }],
    [{ purgedAt: '1' }],
    [{ rate: { tasks: 1, perMs: 1, burst: 1_000_001 } }],
    [{ backoffMs: 86_400_001 }],
    [{ maxRunMs: 99 }],
    [{ unknown: 1 }],
    [[]],
    [null],
  ])('refuses the settings %j', async (body) => {
    expectProblem(await server.call('PUT', topicPath('t3'), { body }), 400, 'invalid-input');
    expectProblem(await server.get(topicPath('t3')), 404, 'topic-not-found');
  });

  it('takes wider priorities where the topic has bands', async () => {
    await server.call('PUT', topicPath('t4'), { body: { bands: [1, 101, 1001] } });
    await server.enqueue('t4', { payload: 'low', priority: 5 }, { payload: 'high', priority: 5000 });
    expect((await server.lease('t4', { max: 2 })).map((task) => task.payload)).toEqual(['high', 'low']);
  });

  it('purges what waits', async () => {
    const [id] = await server.enqueue('t5', { payload: 1 });
    const answer = await server.call('DELETE', topicPath('t5'));
    expect(answer).toMatchObject({ status: 204, text: '' });
    expect(await server.lease('t5')).toEqual([]);
    expect((await server.get(`${topicPath('t5')}/tasks/${id}`)).json.state).toBe('cancelled');
  });

  it('answers 404 to a purge of a topic that never was', async () => {
    expectProblem(await server.call('DELETE', topicPath('never')), 404, 'topic-not-found');
  });

  it('takes settings back as it gave them', async () => {
    await server.enqueue('t7', { payload: 1 });
    for (const purge of [false, true]) {
      if (purge) await server.call('DELETE', topicPath('t7'));
      const { settings } = (await server.get(topicPath('t7'))).json;
      expect(settings.purgedAt === null).toBe(!purge);
      const answer = await server.call('PUT', topicPath('t7'), { body: { ...settings, maxInFlight: 2 } });
      expect(answer.status, answer.text).toBe(200);
      expect(answer.json.settings).toEqual({ ...settings, maxInFlight: 2 });
    }
  });

  it('has the bounds of the queue', async () => {
    const B = SETTING_BOUNDS;
    const longest = {
      maxRunMs: B.maxRunMs.max,
      retentionMs: B.retentionMs.max,
      deadRetentionMs: B.deadRetentionMs.max,
    };
    const most = { maxInFlight: B.maxInFlight.max, rate: { tasks: 1, perMs: B.ratePerMs.max, burst: B.rateBurst.max } };
    const body = { ...longest, ...most, dedupWindowMs: B.dedupWindowMs.max };
    const answer = await server.call('PUT', topicPath('t8'), { body });
    expect(answer.status, answer.text).toBe(200);
    expect(answer.json.settings).toMatchObject(body);
  });

  it('waits until the topic is drained', async () => {
    await server.enqueue('t6', { payload: 1 });
    const [{ leaseId }] = await server.lease('t6');
    expect((await server.get(`${topicPath('t6')}?drainedWaitMs=20`)).json).toMatchObject({
      topic: 't6',
      drained: false,
    });
    const waiting = server.get(`${topicPath('t6')}?drainedWaitMs=30000`);
    await server.settle({ ack: [{ leaseId }] });
    expect((await waiting).json).toMatchObject({ drained: true, counts: { ready: 0, delayed: 0, leased: 0, dead: 0 } });
  });
});

describe('GET /v1/topics', () => {
  it('lists active topics by name, page by page and by prefix', async () => {
    const names = ['list/a', 'list/b', 'list/c', 'list/ü 😀'];
    for (const name of names) await server.enqueue(name, { payload: 1 });
    const seen: string[] = [];
    let after: string | undefined;
    do {
      const page = await server.get(
        `/v1/topics?prefix=list%2F&limit=3${after ? `&after=${encodeURIComponent(after)}` : ''}`,
      );
      expect(page.status, page.text).toBe(200);
      for (const topic of page.json.topics) {
        expect(topic).toEqual({
          topic: topic.topic,
          counts: { ready: 1, delayed: 0, leased: 0, dead: 0 },
          paused: false,
        });
        seen.push(topic.topic);
      }
      after = page.json.after;
    } while (after !== undefined);
    expect(seen).toEqual(names);
  });
});

describe('/v1/admin/topics/{topic}', () => {
  it('shows both cursors, and what holds the one of completion', async () => {
    await server.enqueue('a1', ...Array.from({ length: 4 }, (_, payload) => ({ payload })));
    const tasks = await server.lease('a1', { max: 3 });
    await server.settle({ ack: [{ leaseId: tasks[0].leaseId }, { leaseId: tasks[2].leaseId }] });
    const scanned = await server.post(admin('a1', 'scan'));
    const cursors = await server.get(admin('a1', 'cursors'));
    for (const answer of [scanned, cursors]) {
      expect(answer.status, answer.text).toBe(200);
      const tier = answer.json.priorities.find((one: { priority: number | 'dead' }) => one.priority === 5);
      expect(tier).toMatchObject({ nextId: 4, scanCursor: 3, completionCursor: 1, lag: 2, ready: 1, inFlight: 1 });
      expect(tier.heldBy).toMatchObject({ entry: 1, leaseUntil: tasks[1].leaseUntil });
      expect(tasks[1].id).toContain(tier.heldBy.task);
    }
  });

  it('says why nothing is handed out', async () => {
    const ids = await server.enqueue('a-why', { payload: 1 });
    expect((await server.get(admin('a-why', 'why'))).json).toEqual({
      topic: 'a-why',
      task: null,
      servable: true,
      obstacles: [],
    });
    await server.post(admin('a-why', 'pause'));
    const answer = await server.get(`${admin('a-why', 'why')}?task=${encodeURIComponent(ids[0]!)}`);
    expect(answer.status, answer.text).toBe(200);
    expect(answer.json).toMatchObject({ task: { id: ids[0], state: 'ready' }, obstacles: [{ code: 'paused' }] });
    expect((await server.get(`${admin('a-why', 'why')}?task=none`)).json.code).toBe('task-not-found');
    expect((await server.get(admin('never-used', 'why'))).json.code).toBe('topic-not-found');
  });

  it('pauses and resumes', async () => {
    await server.enqueue('a2', { payload: 1 });
    expect((await server.post(admin('a2', 'pause'))).json.settings.paused).toBe(true);
    expect(await server.lease('a2')).toEqual([]);
    expect((await server.get('/v1/topics?prefix=a2')).json.topics).toMatchObject([{ topic: 'a2', paused: true }]);
    expect((await server.post(admin('a2', 'resume'), {})).json.settings.paused).toBe(false);
    expect(await server.lease('a2', { waitMs: 5000 })).toHaveLength(1);
  });

  it('redrives dead letters, all or some', async () => {
    await server.enqueue('a3', ...Array.from({ length: 3 }, (_, payload) => ({ payload })));
    const tasks = await server.lease('a3', { max: 3 });
    await server.settle({ nack: tasks.map(({ leaseId }) => ({ leaseId, dead: true })) });
    const some = await server.post(admin('a3', 'redrive'), { ids: [tasks[0].id, 'nothing'] });
    expect(some.json).toMatchObject({ redriven: 1, refused: [{ id: 'nothing', code: expect.any(String) }] });
    expect((await server.post(admin('a3', 'redrive'), { limit: 1 })).json).toEqual({ redriven: 1, refused: [] });
    expect((await server.post(admin('a3', 'redrive'))).json).toEqual({ redriven: 1, refused: [] });
    const again = await server.lease('a3', { max: 3, waitMs: 5000 });
    expect(again.length).toBeGreaterThan(0);
    for (const task of again) expect(task.attempt).toBe(1);
  });

  it.each(['pause', 'resume', 'scan'])('%s takes no fields', async (what) => {
    for (const body of [{ force: true }, [], null, 0, '']) {
      expectProblem(await server.post(admin('a4', what), body), 400, 'invalid-input');
    }
  });

  it.each([[{ ids: [] }], [{ ids: 'x' }], [{ limit: 0 }], [{ all: true }]])('refuses the redrive %j', async (body) => {
    expectProblem(await server.post(admin('a5', 'redrive'), body), 400, 'invalid-input');
  });
});
