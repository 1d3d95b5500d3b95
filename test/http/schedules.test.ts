import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectProblem, startServer, type TestServer } from './support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.close());

const path = (name: string): string => `/v1/schedules/${encodeURIComponent(name)}`;
const put = (name: string, body: unknown) => server.call('PUT', path(name), { body });
const DAILY = { topic: 'reports', pattern: '30 8 * * MON-FRI', timeZone: 'Europe/Berlin', payload: { kind: 'daily' } };

describe('PUT, GET and DELETE /v1/schedules/{name}', () => {
  it('makes one, shows it, changes it as a whole, and deletes it', async () => {
    const name = 'nightly/report ü';
    const made = await put(name, { ...DAILY, priority: 8, metadata: { a: 'b' } });
    expect(made.status, made.text).toBe(200);
    expect(made.json).toMatchObject({
      ...DAILY,
      name,
      priority: 8,
      metadata: { a: 'b' },
      ttlMs: null,
      maxAttempts: null,
      catchUpMs: 60_000,
      lastFiredFor: null,
      lastTask: null,
      fired: 0,
      missed: 0,
      refusal: null,
    });
    expect(made.json.next).toHaveLength(3);
    expect(made.json.next[0]).toBe(made.json.nextAt);
    expect(await server.get(path(name))).toMatchObject({ status: 200, json: made.json });

    const changed = await put(name, { topic: 'reports', pattern: '@daily', payloadBase64: 'AP8=', catchUpMs: 0 });
    expect(changed.json).toMatchObject({ pattern: '@daily', timeZone: 'UTC', payloadBase64: 'AP8=', priority: null });
    expect(changed.json).toMatchObject({ metadata: {}, catchUpMs: 0, createdAt: made.json.createdAt });
    expect(changed.json).not.toHaveProperty('payload');

    expect(await server.call('DELETE', path(name))).toMatchObject({ status: 204, text: '' });
    expectProblem(await server.get(path(name)), 404, 'schedule-not-found');
    expectProblem(await server.call('DELETE', path(name)), 404, 'schedule-not-found');
  });

  it('fires: a task a time, counted in /metrics and /status', async () => {
    const made = await put('ticks', { topic: 'ticks', pattern: '* * * * * *', payload: null, ttlMs: 60_000 });
    expect(made.status, made.text).toBe(200);
    const times: string[] = [];
    while (times.length < 3) {
      for (const task of await server.lease('ticks', { max: 10, waitMs: 10_000 })) {
        expect(task).toMatchObject({ payload: null, metadata: { 'ebbmark-schedule': 'ticks' } });
        times.push(task.metadata['ebbmark-fired-for']);
      }
    }
    const first = Date.parse(times[0]!);
    expect(first).toBeGreaterThan(made.json.createdAt);
    expect(times).toEqual(times.map((_, nth) => new Date(first + nth * 1_000).toISOString()));
    const shown = await server.get(path('ticks'));
    expect(shown.json.fired).toBeGreaterThanOrEqual(3);
    await server.call('DELETE', path('ticks'));
    const [, count] = /^ebbmark_schedule_firings_total (\d+)$/m.exec((await server.get('/metrics')).text)!;
    expect(Number(count)).toBeGreaterThanOrEqual(3);
    expect((await server.get('/metrics')).text).toMatch(/^ebbmark_schedule_firings_missed_total 0$/m);
    expect((await server.get('/status')).text).toMatch(/fired by schedules\s+\d/);
    expect(server.queue.status().firings).toBe(Number(count));
  });

  it.each([
    [{ ...DAILY, pattern: '61 * * * *' }, '/pattern', /"61 \* \* \* \*" is not a cron pattern.*for example: "30 8/],
    [{ ...DAILY, pattern: '' }, '/pattern', /"" is not a string of 1 to 256 characters.*30 8/],
    [{ ...DAILY, timeZone: 'Berlin' }, '/timeZone', /"Berlin" is not the IANA name of a time zone.*Europe\/Berlin/],
    [{ ...DAILY, topic: undefined }, '/topic', /is missing/],
    [{ topic: 'a', pattern: '@daily' }, '', /has not exactly one of payload and payloadBase64/],
    [{ ...DAILY, payloadBase64: 'AP8=' }, '', /has not exactly one of payload and payloadBase64/],
    [{ ...DAILY, priority: 10 }, '/priority', /10 is not/],
    [{ ...DAILY, catchUpMs: 86_400_001 }, '/catchUpMs', /is not an integer from 0 to 86,400,000.*60000/],
    [{ ...DAILY, metadata: { 'ebbmark-x': '1' } }, '/metadata/ebbmark-x', /does not begin with ebbmark-/],
    [{ ...DAILY, messageId: 'm' }, '/messageId', /is not a known field/],
    [null, '', /nothing \(or null\)/],
  ])('refuses %j', async (body, where, message) => {
    const answer = await put('refused', body);
    expectProblem(answer, 400, 'invalid-input');
    expect(answer.json.errors[0].path).toBe(where);
    expect(answer.json.errors[0].message).toMatch(message);
    expectProblem(await server.get(path('refused')), 404, 'schedule-not-found');
  });

  it('refuses a topic that can be none, a payload too large, and names that can be none', async () => {
    expectProblem(await put('refused', { ...DAILY, topic: 'a*' }), 400, 'topic-invalid');
    const large = await put('refused', { ...DAILY, payload: 'x'.repeat(256 * 1024) });
    expectProblem(large, 413, 'payload-too-large');
    for (const name of ['a*', 'x'.repeat(256), '\u0001']) {
      for (const method of ['GET', 'DELETE']) {
        expectProblem(await server.call(method, path(name)), 400, 'invalid-input');
      }
      expectProblem(await put(name, DAILY), 400, 'invalid-input');
    }
  });
});

describe('GET /v1/schedules', () => {
  it('lists them page by page, without their payloads', async () => {
    const names = Array.from({ length: 5 }, (_, nth) => `listed ${nth} ü`);
    for (const name of names) await put(name, DAILY);
    const found: string[] = [];
    for (let after = ''; ; ) {
      const { status, json } = await server.get(`/v1/schedules?limit=2${after}`);
      expect(status).toBe(200);
      for (const one of json.schedules) {
        expect(one).toMatchObject({ topic: 'reports', nextAt: expect.any(Number) });
        expect(one).not.toHaveProperty('payload');
        found.push(one.name);
      }
      if (json.after === undefined) break;
      after = `&after=${encodeURIComponent(json.after)}`;
    }
    expect(found).toEqual(names);
    for (const bad of ['limit=0', 'limit=1001', 'limit=x', 'prefix=a']) {
      expectProblem(await server.get(`/v1/schedules?${bad}`), 400, 'invalid-input');
    }
  });
});
