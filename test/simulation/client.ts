import type { LeaseRequest, Queue, SettingsPatch, SettleRequest, TaskInfo, TaskState } from '../../src/queue/api.ts';
import type { Cluster } from './cluster.ts';
import type { Answer, CallKind, Calls } from './history.ts';
import type { Loop } from './loop.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';

/** What the actors share: the way to the servers, and what they know of tasks. */
export interface World {
  readonly loop: Loop;
  readonly cluster: Cluster;
  readonly scenario: Scenario;
  /** The last phase has begun: everybody finishes what he has and goes home. */
  quiet: boolean;
  /** When the last delayed task is due; by the simulation's clock. */
  lastDueAt: number;
  /** Tasks, as enqueues were answered. */
  readonly known: { readonly topic: string; readonly id: string }[];
  nextToken(): number;
}

const abortedBy = (signal: AbortSignal | undefined): { signal?: AbortSignal } =>
  signal === undefined ? {} : { signal };

/** A client: calls the server that is there, and waits for one where there is none. */
export class Client {
  readonly name: string;
  readonly random: Random;
  readonly world: World;

  constructor(name: string, random: Random, world: World) {
    this.name = name;
    this.random = random;
    this.world = world;
  }

  sleep(ms: number): Promise<void> {
    return this.world.loop.sleep(ms);
  }

  /** Waits as everybody does between two things. */
  pause(meanMs: number): Promise<void> {
    return this.sleep(this.random.around(meanMs * (this.world.quiet ? 1 : this.world.scenario.stretch)));
  }

  async call<K extends CallKind>(
    kind: K,
    args: Calls[K]['args'],
    invoke: (queue: Queue, signal: AbortSignal | undefined) => Promise<Calls[K]['value']>,
  ): Promise<Answer<Calls[K]['value']>> {
    for (;;) {
      const { disconnects } = this.world.scenario;
      const breaks = !this.world.quiet && this.random.chance(disconnects) ? this.random.around(5) : undefined;
      const answer = await this.world.cluster.call(this.name, kind, args, invoke, breaks);
      if (answer !== null) return answer;
      await this.sleep(this.random.around(20));
    }
  }

  lease(request: Omit<LeaseRequest, 'signal'>) {
    return this.call('lease', request, (queue, signal) => queue.lease({ ...request, ...abortedBy(signal) }));
  }

  settle(request: SettleRequest) {
    return this.call('settle', request, (queue) => queue.settle(request));
  }

  task(topic: string, id: string) {
    return this.call('task', { topic, id }, (queue) => queue.task(topic, id));
  }

  counts(topic: string) {
    return this.call('counts', { topic }, async (queue) => (await queue.topic(topic)).counts);
  }

  cursors(topic: string) {
    return this.call('cursors', { topic }, (queue) => queue.cursors(topic));
  }

  /** Lets the completion scanner pass the topic now; tells its cursors. */
  scan(topic: string) {
    return this.call('cursors', { topic }, (queue) => queue.scan(topic));
  }

  drained(topic: string, timeoutMs: number) {
    return this.call('drained', { topic, timeoutMs }, (queue, signal) =>
      queue.drained(topic, { timeoutMs, ...abortedBy(signal) }),
    );
  }

  list(topic: string, state: TaskState | null) {
    return this.call('list', { topic, state }, async (queue) => {
      const tasks: TaskInfo[] = [];
      for (let after: string | undefined; ; ) {
        const page = await queue.tasks(topic, {
          limit: this.world.quiet ? 200 : 20,
          ...(state === null ? {} : { state }),
          ...(after === undefined ? {} : { after }),
        });
        tasks.push(...page.tasks);
        if (page.after === undefined) return tasks;
        after = page.after;
      }
    });
  }

  configure(topic: string, patch: SettingsPatch) {
    return this.call('configure', { topic, patch }, async (queue) => {
      await queue.configure(topic, patch);
      return null;
    });
  }

  /** Sets what has to be set, however often it takes. */
  async insistOn(topic: string, patch: SettingsPatch): Promise<void> {
    while ((await this.configure(topic, patch)).kind !== 'ok') await this.sleep(this.random.around(50));
  }
}
