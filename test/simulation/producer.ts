import type { TaskInput } from '../../src/queue/api.ts';
import { Client } from './client.ts';
import type { SentTask } from './history.ts';

/** Codes after which nobody knows whether the tasks are in. */
const DOUBTFUL = new Set(['outcome-unknown', 'store-unavailable', 'shutting-down']);

/** Enqueues tasks of every kind, and tries again where that is safe. */
export class Producer extends Client {
  async run(tasks: number): Promise<void> {
    for (let sent = 0; sent < tasks && !this.world.quiet; ) {
      if (!this.world.scenario.hurried) await this.pause(60);
      const drawn = Number(this.random.weighted({ '1': 5, '2': 2, '5': 2, '20': 1 }));
      const count = Math.min(tasks - sent, drawn * this.world.scenario.bulk);
      const topic = this.random.pick(this.world.scenario.topics).name;
      const batch = Array.from({ length: count }, () => this.#draw(topic));
      sent += batch.length;
      await this.#send(topic, batch);
    }
  }

  async #send(topic: string, batch: readonly SentTask[]): Promise<void> {
    const key = this.random.chance(0.05) ? `key-${batch[0]!.token}` : undefined;
    const args = { topic, tasks: batch, ...(key === undefined ? {} : { key }) };
    for (let tries = 0; tries < 4; tries++) {
      const answer = await this.call('enqueue', args, (queue) =>
        queue.enqueue(
          topic,
          batch.map(({ input }) => input),
          key === undefined ? {} : { idempotencyKey: key },
        ),
      );
      // A delay counts from when a server took the call, however late that was.
      for (const { input } of batch) this.#noteDue(input);
      if (answer.kind === 'ok') {
        for (const result of answer.value) if (result.id !== null) this.world.known.push({ topic, id: result.id });
        return;
      }
      if (answer.kind === 'refused' && !DOUBTFUL.has(answer.code)) return;
      // Again is safe where every task is known by an id.
      if (key === undefined && batch.some(({ input }) => input.messageId === undefined)) return;
      await this.sleep(this.random.around(50));
    }
  }

  #draw(topic: string): SentTask {
    const { random } = this;
    const token = this.world.nextToken();
    const { bands } = this.world.scenario.topics.find(({ name }) => name === topic)!.patch;
    const priority = random.chance(0.5)
      ? undefined
      : bands
        ? random.pick([1, 9, 10, 99, 1000])
        : random.pick(this.world.scenario.priorities);
    const input: TaskInput = {
      payload: { t: token },
      ...(priority === undefined ? {} : { priority }),
      ...(random.chance(0.35)
        ? {
            messageId: random.chance(0.5) ? `m${random.int(0, 12)}` : `u${token}`,
            onDuplicate: random.pick(['keep', 'keep', 'again', 'replace']),
          }
        : {}),
      ...(random.chance(this.world.scenario.delayed)
        ? { delayMs: random.pick([0, 10, 100, 400, 1600, 3000]) * this.#longer() }
        : {}),
      ...(random.chance(0.08) ? { ttlMs: random.pick([5, 200, 1000]) } : {}),
      ...(random.chance(0.1) ? { maxAttempts: random.int(1, 4) } : {}),
      ...(random.chance(0.1) ? { metadata: { trace: `t${token}` } } : {}),
    };
    return { token, input };
  }

  #noteDue({ delayMs }: TaskInput): void {
    if (delayMs !== undefined) this.world.lastDueAt = Math.max(this.world.lastDueAt, this.world.loop.now + delayMs);
  }

  /** Where everybody takes hours, delays outlast the retention, and whole periods of the activity index. */
  #longer(): number {
    return this.world.scenario.stretch > 1 && this.random.chance(0.5) ? 2_000 : 1;
  }
}
