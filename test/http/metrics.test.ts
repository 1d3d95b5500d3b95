/** What /metrics tells: by the conventions of Prometheus, of what really happened, and never of a topic. */
import { describe, expect, onTestFinished, test } from 'vitest';
import { Budgets, limitsFrom } from '../../src/http/budgets.ts';
import { metricsOf } from '../../src/http/metrics.ts';
import { VERSION } from '../../src/http/version.ts';
import { MeasuredStore } from '../../src/queue/measured-store.ts';
import { Distribution, Measures } from '../../src/queue/measures.ts';
import { openStore } from '../../src/queue/open.ts';
import { testQueue } from '../support/queue.ts';
import { sharedStore } from '../support/shared-store.ts';
import { type Family, lint, parseMetrics, type Sample, sampleOf } from './support/prometheus.ts';
import { startServer, type TestServer, tasksPath } from './support/server.ts';

async function start(options = {}): Promise<TestServer> {
  const server = await startServer(options);
  onTestFinished(() => server.close());
  return server;
}

const scrape = async (server: TestServer) => parseMetrics((await server.get('/metrics')).text);
const ours = (families: ReadonlyMap<string, Family>) =>
  [...families.values()].filter(({ name }) => /^ebbmark_/.test(name));

describe('by the conventions', () => {
  test('no name, help text, type or label is found fault with', async () => {
    const server = await start({ processMetrics: true });
    await server.expectAlive();
    const families = await scrape(server);
    expect(ours(families).length).toBeGreaterThan(40);
    // Those of the process are named by prom-client.
    for (const family of ours(families)) {
      expect({ [family.name]: lint(family) }).toEqual({ [family.name]: [] });
      expect(family.help, family.name).toMatch(/^[A-Z].*\.$/);
    }
    expect(families.has('nodejs_eventloop_lag_p99_seconds')).toBe(true);
  });

  test('what breaks a rule is found', () => {
    const family = (name: string, type: string, help = 'Help.'): Family => ({ name, type, help, samples: [] });
    expect(lint(family('a_requests', 'counter'))).toEqual(['counter metrics should have "_total" suffix']);
    expect(lint(family('a_requests_total', 'gauge'))).toEqual(['non-counter metrics should not have "_total" suffix']);
    expect(lint(family('a_lag_ms', 'gauge'))).toEqual(['metric names should not contain abbreviated units']);
    expect(lint(family('a_lag_milliseconds', 'gauge'))).toEqual(['use base unit "seconds" instead of "milliseconds"']);
    expect(lint(family('a_size_count', 'gauge'))).toEqual(['"_count" is for histograms and summaries']);
    expect(lint(family('aSize', 'gauge'))).toEqual(['metric names should be written in snake_case']);
    expect(lint(family('a', 'gauge', ''))).toEqual(['no help text']);
  });

  test('classes of a histogram are cumulative, and the last one is its count', async () => {
    const server = await start();
    await server.expectAlive();
    const histograms = ours(await scrape(server)).filter(({ type }) => type === 'histogram');
    expect(histograms.length).toBeGreaterThan(8);
    for (const { name, samples } of histograms) {
      const series = new Map<string, Sample[]>();
      for (const sample of samples) {
        const { le: _bound, ...labels } = sample.labels;
        const key = JSON.stringify(labels);
        series.set(key, [...(series.get(key) ?? []), sample]);
      }
      for (const some of series.values()) {
        const classes = some.filter((sample) => sample.name === `${name}_bucket`);
        const bounds = classes.map(({ labels }) =>
          labels.le === '+Inf' ? Number.POSITIVE_INFINITY : Number(labels.le),
        );
        expect(bounds, name).toEqual([...bounds].sort((a, b) => a - b));
        const counts = classes.map(({ value }) => value);
        expect(counts, name).toEqual([...counts].sort((a, b) => a - b));
        expect(some.filter((sample) => sample.name === `${name}_count`).map(({ value }) => value)).toEqual([
          counts.at(-1),
        ]);
        expect(some.filter((sample) => sample.name === `${name}_sum`)).toHaveLength(1);
      }
    }
  });

  test('nothing tells a topic, a task, a message id or a worker', async () => {
    const server = await start();
    const [id] = await server.enqueue('canary-topic', { payload: 'canary-payload', messageId: 'canary-message' });
    await server.get(`${tasksPath('canary-topic')}/${encodeURIComponent(id!)}`);
    await server.get('/v1/topics/canary-never');
    await server.get('/canary-address');
    await server.lease('canary-topic', { worker: 'canary-worker' });
    const { text } = await server.get('/metrics');
    expect(text).not.toContain('canary');
    expect(text).toContain('route="/v1/topics/:topic/tasks/:id"');
  });
});

describe('requests', () => {
  test('are counted by route and class of their status; those to nowhere together', async () => {
    const server = await start();
    for (const topic of ['a', 'b', 'c']) await server.enqueue(topic, { payload: 1 });
    await server.post('/v1/topics/a/tasks', { tasks: [{}] });
    for (const path of ['/x', '/y', '/v1/z']) await server.get(path);
    const families = await scrape(server);
    const of = (labels: Record<string, string>) =>
      sampleOf(families, 'ebbmark_http_request_duration_seconds_count', labels);
    const route = '/v1/topics/:topic/tasks';
    expect(of({ method: 'POST', route, status: '2xx' })).toBe(3);
    expect(of({ method: 'POST', route, status: '4xx' })).toBe(1);
    expect(of({ route: 'none' })).toBe(3);
  });
});

describe('the queue', () => {
  test('calls, waits and ages', async () => {
    const { queue, env } = await testQueue();
    await queue.enqueue('t', [{ payload: 1 }, { payload: 2 }]);
    await env.advance(3_000);
    const [first] = await queue.lease();
    await env.advance(4_000);
    await queue.settle({ ack: [{ leaseId: first!.leaseId }] });
    await queue.settle({ ack: [{ leaseId: first!.leaseId }] });
    const [second] = await queue.lease();
    await queue.settle({ nack: [{ leaseId: second!.leaseId, delayMs: 0 }] });
    await env.advance(1_000);
    await queue.lease();
    const families = parseMetrics(await metricsOf(queue).read());
    const value = (name: string, labels = {}) => sampleOf(families, name, labels);
    expect(value('ebbmark_enqueue_duration_seconds_count')).toBe(1);
    expect(value('ebbmark_lease_duration_seconds_count')).toBe(3);
    expect(value('ebbmark_settle_duration_seconds_count')).toBe(3);
    // 3 s, 7 s, and 1 s after it came back.
    expect(value('ebbmark_task_wait_seconds_sum')).toBeCloseTo(11);
    expect(value('ebbmark_task_wait_seconds_bucket', { le: '5' })).toBe(2);
    // An ack that is repeated is none.
    expect(value('ebbmark_task_age_at_success_seconds_count')).toBe(1);
    expect(value('ebbmark_task_age_at_success_seconds_sum')).toBeCloseTo(7);
    expect(value('ebbmark_store_batch_rows_sum', { operation: 'append' })).toBe(3);
    expect(value('ebbmark_store_call_duration_seconds_count', { operation: 'append' })).toBe(2);
    expect(value('ebbmark_scanner_pass_duration_seconds_count')).toBeGreaterThan(0);
    expect(value('ebbmark_ready')).toBe(1);
    expect(value('ebbmark_shards')).toBe(1);
    expect(value('ebbmark_shards_held')).toBe(1);
    expect(value('ebbmark_build_info', { version: VERSION })).toBe(1);
  });

  test('a lease call is not measured while there is nothing to take', async () => {
    const { queue, env } = await testQueue();
    const waiting = queue.lease({ waitMs: 10_000 });
    await env.advance(5_000);
    expect(sampleOf(parseMetrics(await metricsOf(queue).read()), 'ebbmark_lease_calls_waiting')).toBe(1);
    await queue.enqueue('t', { payload: 1 });
    expect(await waiting).toHaveLength(1);
    await queue.lease();
    expect(queue.measures().lease).toMatchObject({ count: 1 });
    expect(queue.measures().lease.sum).toBeLessThan(1);
  });

  test('one that has stopped is not ready', async () => {
    const { queue } = await testQueue();
    await queue.stop();
    expect(sampleOf(parseMetrics(await metricsOf(queue).read()), 'ebbmark_ready')).toBe(0);
  });

  test('a classification: each value in the first class that it is not above', () => {
    const distribution = new Distribution([1, 10]);
    for (const value of [0, 1, 1.5, 10, 11]) distribution.observe(value);
    expect(distribution).toMatchObject({ counts: [2, 2, 1], sum: 23.5, count: 5 });
  });
});

describe('the store and other servers', () => {
  test('calls that fail are counted by operation, and answered as they were', async () => {
    const measures = new Measures();
    const store = new MeasuredStore(await openStore({ store: 'sqlite::memory:' }), measures, () => performance.now());
    await store.readTopic('t');
    await store.close();
    await expect(store.readTopic('t')).rejects.toThrow();
    expect(measures.storeCalls.get('read_topic')).toMatchObject({ failed: 1, seconds: { count: 2 } });
  });

  test('renewals of shards, calls of other servers, and those that get no answer', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    await env.advance(10_000);
    const families = async () => parseMetrics(await metricsOf(first.queue).read());
    const before = await families();
    expect(sampleOf(before, 'ebbmark_shard_lease_renewals_total', { outcome: 'ok' })).toBeGreaterThan(4);
    expect(sampleOf(before, 'ebbmark_shard_lease_renewals_total', { outcome: 'failed' })).toBe(0);
    expect(sampleOf(before, 'ebbmark_shards_held')).toBe(4);
    await first.queue.lease({ max: 10 });
    const after = await families();
    expect(sampleOf(after, 'ebbmark_peer_call_duration_seconds_count', { call: 'lease' })).toBeGreaterThan(0);
    expect(sampleOf(after, 'ebbmark_peer_errors_total', { call: 'lease' })).toBe(0);
    second.pause();
    await env.advance(300);
    await first.queue.lease({ max: 10 });
    expect(sampleOf(await families(), 'ebbmark_peer_errors_total', { call: 'lease' })).toBe(1);
    second.resume();
  });
});

test('each task is counted once, at whichever server it was handed out, and settled', async () => {
  const { env, server } = await sharedStore();
  const [first, second] = [await server(), await server()];
  const topics = Array.from({ length: 12 }, (_, nth) => `t${nth}`);
  for (const topic of topics) await first.queue.enqueue(topic, { payload: topic });
  await env.advance(2_000);
  const leased = await first.queue.lease({ max: 100 });
  expect(leased).toHaveLength(topics.length);
  const ack = leased.map(({ leaseId }) => ({ leaseId }));
  await second.queue.settle({ ack });
  await second.queue.settle({ ack });
  const [here, there] = [first.queue.measures(), second.queue.measures()];
  expect(here.wait.count).toBeGreaterThan(0);
  expect(there.wait.count).toBeGreaterThan(0);
  expect(here.wait.count + there.wait.count).toBe(topics.length);
  expect(here.wait.sum + there.wait.sum).toBeCloseTo(2 * topics.length, 0);
  expect([here.ageAtSuccess.count, there.ageAtSuccess.count]).toEqual([0, topics.length]);
});

const NOTHING_REFUSED = new Budgets(limitsFrom({}), () => 0).usage().refused;

test('budgets are told where there are some, and not where there are none', async () => {
  const { queue } = await testQueue();
  const of = (now: number, limit: number) => ({ now, limit });
  const usage = () => ({
    connections: of(3, 1024),
    tasks: of(5, 100_000),
    memory: { input: of(1_000, 3_000), rest: of(10, 1_000) },
    refused: { ...NOTHING_REFUSED, input: 2, tasks: 1 },
  });
  const families = parseMetrics(await metricsOf(queue, { budgets: { usage } }).read());
  expect(sampleOf(families, 'ebbmark_connections')).toBe(3);
  expect(sampleOf(families, 'ebbmark_connections_limit')).toBe(1024);
  expect(sampleOf(families, 'ebbmark_tasks_in_hand')).toBe(5);
  expect(sampleOf(families, 'ebbmark_memory_budget_used_bytes', { share: 'input' })).toBe(1_000);
  expect(sampleOf(families, 'ebbmark_memory_budget_limit_bytes', { share: 'rest' })).toBe(1_000);
  expect(sampleOf(families, 'ebbmark_requests_refused_total', { reason: 'input' })).toBe(2);
  for (const family of families.values()) expect({ [family.name]: lint(family) }).toEqual({ [family.name]: [] });
  const none = parseMetrics(await metricsOf(queue).read());
  expect(none.get('ebbmark_connections')?.samples).toEqual([]);
});
