/** Servers on one Cassandra store as processes of their own, and clients that take now this one and now that. */
import { HttpQueue } from '../src/client/http-queue.ts';
import { untilEven } from '../test/slow/faults/support/servers.ts';
import { Child } from './child.ts';
import type { ServerOrder, ServerReport } from './server.ts';

export class Fleet {
  readonly queues: HttpQueue[] = [];
  readonly #store: string;
  readonly #running: Child<ServerOrder, ServerReport>[] = [];

  /** @param store the address that all of them open */
  constructor(store: string) {
    this.#store = store;
  }

  /** Starts servers until there are so many; resolves once they have even shares. */
  async growTo(size: number): Promise<void> {
    while (this.queues.length < size) {
      const child = new Child<ServerOrder, ServerReport>('server.ts');
      this.#running.push(child);
      this.queues.push(new HttpQueue((await child.ask({ kind: 'open', store: this.#store })).origin));
    }
    await untilEven(this.queues.map((queue) => ({ queue })));
  }

  /** Calls that go to the servers in turn. */
  inTurn(): Pick<HttpQueue, 'enqueue' | 'lease' | 'settle'> {
    let turn = 0;
    const next = (): HttpQueue => this.queues[turn++ % this.queues.length]!;
    return {
      enqueue: (...args) => next().enqueue(...args),
      lease: (...args) => next().lease(...args),
      settle: (...args) => next().settle(...args),
    };
  }

  /** Statements that went through the drivers of all of them so far. */
  async statements(): Promise<number> {
    let sum = 0;
    for (const child of this.#running) sum += (await child.ask({ kind: 'look' })).statements;
    return sum;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#running.map((child) => child.stop()));
  }
}
