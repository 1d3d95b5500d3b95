/** Why a topic, or a task, is not being handed out just now, and what would change that. */
import type { Limit } from '../core/limits.ts';
import { taskIdOf } from '../core/task-id.ts';
import type { Explanation, Obstacle, TaskInfo } from './api.ts';
import type { Engine } from './engine.ts';
import type { Inspector } from './inspect.ts';
import { type Locator, readByIds } from './locate.ts';
import { placeIn, type Topic } from './topics.ts';

const LEASES_SHOWN = 10;

export class Explainer {
  readonly #engine: Engine;
  readonly #locator: Locator;
  readonly #inspector: Inspector;

  constructor(engine: Engine, locator: Locator, inspector: Inspector) {
    this.#engine = engine;
    this.#locator = locator;
    this.#inspector = inspector;
  }

  async topic(topic: Topic): Promise<Explanation> {
    const obstacles = await this.#gate(topic);
    if (topic.counts().ready === 0) obstacles.push(await this.#nothingReady(topic));
    return { topic: topic.name, task: null, servable: obstacles.length === 0, obstacles };
  }

  /** @throws QueueError `task-not-found` */
  async task(topic: Topic, id: string): Promise<Explanation> {
    const located = await this.#locator.find(topic.name, id);
    const info = await this.#inspector.info(topic, located);
    const obstacles: Obstacle[] = [];
    if (info.state === 'ready') {
      obstacles.push(...(await this.#gate(topic)));
      const before = this.#before(topic, located.place.tier, located.place.id);
      if (before > 0) obstacles.push(behind(before));
    } else obstacles.push(ofState(topic, info));
    return { topic: topic.name, task: { id: info.id, state: info.state }, servable: obstacles.length === 0, obstacles };
  }

  async #gate(topic: Topic): Promise<Obstacle[]> {
    return Promise.all(
      topic.closedBy(this.#engine.env).map(async ({ limit, until }) => ({
        ...ofLimit(topic, limit),
        until,
        leases: limit === 'maxInFlight' ? await this.#leases(topic) : [],
      })),
    );
  }

  async #leases(topic: Topic): Promise<Obstacle['leases']> {
    const leases: { id: string; worker: string | null; until: number }[] = [];
    for (const log of topic.logs) {
      const ids: number[] = [];
      for (const [id, { leased }] of log.open) if (leased && ids.length + leases.length < LEASES_SHOWN) ids.push(id);
      for (const entry of (await readByIds(this.#engine.store, log.address, ids)).values()) {
        if (entry.status !== 'leased') continue;
        const { worker, leaseUntil } = entry;
        leases.push({ id: taskIdOf(entry, placeIn(log.address, entry.id)), worker, until: leaseUntil! });
      }
    }
    return leases;
  }

  async #nothingReady(topic: Topic): Promise<Obstacle> {
    const { delayed, leased, dead } = topic.counts();
    const [next] = delayed > 0 ? (await this.#inspector.list(topic, { state: 'delayed', limit: 1 })).tasks : [];
    const there = [`${delayed} delayed`, `${leased} leased`, `${dead} dead`].join(', ');
    const retry = `ebbmark redrive ${topic.name}`;
    return {
      code: 'no-ready-task',
      detail: `No task is ready; ${there}.`,
      until: next?.dueAt ?? null,
      remedy:
        delayed > 0
          ? 'Delayed tasks come up when they are due; reschedule one to have it sooner.'
          : dead > 0
            ? `Dead letters come back with: ${retry}`
            : 'Enqueue tasks.',
      leases: [],
    };
  }

  /** How many tasks are handed out before the entry, as far as is known: those of higher tiers, and those before it. */
  #before(topic: Topic, tier: number, id: number): number {
    let before = 0;
    for (const log of topic.logs) {
      if (log.isDead || log.address.tier < tier) continue;
      before += log.address.tier > tier ? log.ready : Math.min(log.ready, Math.max(0, id - log.scan));
    }
    return before;
  }
}

/** What any server can say where none that it reaches schedules the topic. */
export const withoutHolder = (topic: string): Explanation => ({
  topic,
  task: null,
  servable: false,
  obstacles: [
    {
      code: 'no-holder',
      detail: 'No server that can be reached hands out the tasks of this topic just now.',
      until: null,
      remedy: 'Another server takes it over within seconds; if not, look at the logs of the servers and at /readyz.',
      leases: [],
    },
  ],
});

const behind = (count: number): Obstacle => ({
  code: 'behind-others',
  detail: `Some ${count} ${count === 1 ? 'task is' : 'tasks are'} handed out before it.`,
  until: null,
  remedy: 'More workers, or a higher priority: reschedule the task.',
  leases: [],
});

/** What a limit is called, says, and can be changed by. */
function ofLimit({ name, settings, inFlight }: Topic, limit: Limit): Pick<Obstacle, 'code' | 'detail' | 'remedy'> {
  const set = (value: string): string => `or: ebbmark set ${name} ${limit}=${value}`;
  switch (limit) {
    case 'paused':
      return { code: 'paused', detail: 'The topic is paused.', remedy: `ebbmark resume ${name}` };
    case 'blockedUntil':
      return {
        code: 'blocked',
        detail: 'The topic is blocked until a time.',
        remedy: `Wait until then, ${set('null')}`,
      };
    case 'maxInFlight':
      return {
        code: 'in-flight-limit',
        detail: `${inFlight} of ${settings.maxInFlight} tasks that may be in flight are leased.`,
        remedy: `It ends when one is settled or its lease runs out, ${set(String(settings.maxInFlight! + 1))}`,
      };
    case 'minIntervalMs':
      return {
        code: 'interval',
        detail: `Between two leases there are ${settings.minIntervalMs} ms at least.`,
        remedy: `Wait until then, ${set('null')}`,
      };
    case 'cooldownMs':
      return {
        code: 'cooldown',
        detail: `Between a settlement and the next lease there are ${settings.cooldownMs} ms at least.`,
        remedy: `Wait until then, ${set('null')}`,
      };
    case 'rate': {
      const { tasks, perMs, burst } = settings.rate!;
      return {
        code: 'rate',
        detail: `${tasks} tasks may be leased in ${perMs} ms, up to ${burst} at once; they were.`,
        remedy: `Wait until then, ${set('null')}`,
      };
    }
  }
}

/** Why a task that is not ready is not handed out. */
function ofState({ name }: Topic, task: TaskInfo): Obstacle {
  const { id, state, reason, attempt, maxAttempts, dueAt, leaseUntil } = task;
  const why = reason === null ? '' : ` (${reason})`;
  switch (state) {
    case 'leased': {
      const worker = task.attempts.at(-1)?.worker ?? null;
      return {
        code: 'leased',
        detail: `A worker has it${worker === null ? '' : `: ${worker}`}, attempt ${attempt} of ${maxAttempts}.`,
        until: leaseUntil,
        remedy: `It comes back when its lease runs out, unless it is settled; ebbmark cancel ${name} ${id} ends it.`,
        leases: [{ id, worker, until: leaseUntil! }],
      };
    }
    case 'delayed':
      return {
        code: 'not-due',
        detail: 'It is to run later.',
        until: dueAt,
        remedy: `Wait until then, or: ebbmark reschedule ${name} ${id} --delay 0s`,
        leases: [],
      };
    case 'dead':
      return {
        code: 'dead',
        detail: `It is a dead letter after ${attempt} of ${maxAttempts} attempts${why}.`,
        until: null,
        remedy: `ebbmark redrive ${name} --id ${id}`,
        leases: [],
      };
    default:
      return {
        code: 'settled',
        detail: `It is ${state}${why}, for good.`,
        until: null,
        remedy: 'Enqueue it anew.',
        leases: [],
      };
  }
}
