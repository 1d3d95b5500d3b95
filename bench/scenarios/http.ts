/** The queue behind HTTP: server and load generator are a process each. */
import { Child } from '../child.ts';
import type { LoadOrder, LoadReport } from '../load.ts';
import type { BenchOptions } from '../options.ts';
import { bodyOf } from '../payload.ts';
import type { Place } from '../place.ts';
import { inRounds, median, ratioOf } from '../rounds.ts';
import type { ServerOrder, ServerReport } from '../server.ts';
import { meets, type Row, type Target } from '../table.ts';

/** Clients at the same time: many with a task each, or a few with many tasks each. */
const CLIENTS = { 1: 64, 200: 8 } as const;
type Batch = keyof typeof CLIENTS;
const BATCHES: readonly Batch[] = [1, 200];

/** Made by server.ts. */
const EMPTY_ROUTE = '/empty/bench/tasks';

const SINGLE_ENQUEUE: Target = { of: 'ratio', is: 'at least', bound: 0.4 };

type Load = Child<LoadOrder, LoadReport>;
type Server = Child<ServerOrder, ServerReport>;

export async function http(place: Place, options: BenchOptions): Promise<readonly Row[]> {
  const server: Server = new Child('server.ts');
  const load: Load = new Child('load.ts');
  try {
    const { origin } = await server.ask({ kind: 'open', store: place.fresh() });
    const rows: Row[] = [];
    for (const batch of BATCHES) rows.push(...(await throughput(batch, origin, load, server, options)));
    for (const batch of BATCHES) rows.push(...(await latency(batch, origin, load, options)));
    await server.ask({ kind: 'stop' });
    return rows;
  } finally {
    await Promise.all([server.stop(), load.stop()]);
  }
}

async function throughput(
  batch: Batch,
  origin: string,
  load: Load,
  server: Server,
  options: BenchOptions,
): Promise<readonly Row[]> {
  const body = bodyOf(batch);
  const connections = CLIENTS[batch];
  const durationMs = options.quick ? 500 : 1_500;
  // About as long as the others take.
  const leasesEach = options.quick ? 20 : 60;
  const tasksPerSecond = async (report: Promise<LoadReport>, tasksEach: number) => (await report).perSecond * tasksEach;
  const post = (path: string) =>
    tasksPerSecond(load.ask({ kind: 'post', origin, path, body, connections, durationMs }), batch);
  const drained = `drained-${batch}`;
  const rates = await inRounds(
    {
      'empty route': () => post(EMPTY_ROUTE),
      enqueue: () => post(`/v1/topics/enqueued-${batch}/tasks`),
      drain: async () => {
        await server.ask({ kind: 'fill', topic: drained, tasks: connections * leasesEach * batch });
        return tasksPerSecond(load.ask({ kind: 'drain', origin, topic: drained, batch, connections, leasesEach }), 1);
      },
    },
    options.rounds,
    (text) => options.progress(`HTTP, throughput in batches of ${batch}, ${text}`),
  );
  const row = (metric: 'enqueue' | 'drain', target: Target | null): Row => {
    const subject = rates.get(metric) ?? [];
    const floor = rates.get('empty route') ?? [];
    const value = median(subject);
    const ratio = ratioOf(subject, floor);
    return {
      scenario: 'http',
      metric: `${metric}, batches of ${batch}, ${connections} clients`,
      value,
      unit: 'tasks/s',
      floor: { name: 'empty route', value: median(floor) },
      ratio,
      target,
      reached: target && meets(target, { value, ratio }),
    };
  };
  // A drained task takes part in two requests, so its ratio can't be above 0.5.
  return [row('enqueue', batch === 1 ? SINGLE_ENQUEUE : null), row('drain', null)];
}

async function latency(batch: Batch, origin: string, load: Load, options: BenchOptions): Promise<readonly Row[]> {
  const body = bodyOf(batch);
  const samples = options.quick ? 100 : 500;
  const times = await inRounds(
    {
      'empty route': () => load.ask({ kind: 'round-trip', origin, path: EMPTY_ROUTE, body, samples }),
      'hand-over': () => load.ask({ kind: 'hand-over', origin, topic: `handed-${batch}`, batch, body, samples }),
    },
    options.rounds,
    (text) => options.progress(`HTTP, latency in batches of ${batch}, ${text}`),
  );
  return (['p50', 'p99'] as const).map((percentile) => {
    const of = (name: string) => (times.get(name) ?? []).map((round) => round[percentile]);
    return {
      scenario: 'http',
      metric: `enqueue to lease, batches of ${batch}, ${percentile}`,
      value: median(of('hand-over')),
      unit: 'ms',
      floor: { name: 'empty route', value: median(of('empty route')) },
      ratio: ratioOf(of('hand-over'), of('empty route')),
      target: null,
      reached: null,
    };
  });
}
