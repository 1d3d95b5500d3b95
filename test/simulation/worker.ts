import type { LeasedTask, LeaseRequest, SettleRequest } from '../../src/queue/api.ts';
import { Client } from './client.ts';
import { patchOf } from './scenario.ts';

/** Leases tasks and does with them all that workers do, good and bad. */
export class Worker extends Client {
  async run(): Promise<void> {
    while (!this.world.quiet) {
      const request = this.#request();
      const answer = await this.lease(request);
      if (answer.kind !== 'ok' || answer.value.length === 0) {
        await this.pause(answer.kind === 'refused' ? 200 : 20);
        continue;
      }
      await Promise.all(this.#batches(answer.value).map((tasks) => this.#work(tasks, request.leaseMs)));
    }
  }

  #request(): Omit<LeaseRequest, 'signal'> {
    const { random } = this;
    const { topics, hurried, bulk } = this.world.scenario;
    if (hurried) return { max: random.pick([1, 1, 3]) * bulk, waitMs: 500, worker: this.name };
    const asked = random.weighted({ all: 5, name: 3, names: 1, prefix: 1 });
    const names =
      asked === 'all'
        ? undefined
        : asked === 'name'
          ? [random.pick(topics).name]
          : asked === 'names'
            ? topics.filter(() => random.chance(0.6)).map(({ name }) => name)
            : [`${random.pick(topics).name[0]}*`];
    return {
      ...(names === undefined ? {} : { topics: names }),
      max: random.pick([1, 1, 1, 3, 10]) * bulk,
      waitMs: random.pick([0, 50, 500, 3000]),
      ...(random.chance(0.15) ? { maxPerTopic: random.int(1, 2) } : {}),
      ...(random.chance(0.1) ? { priorities: [random.int(0, 9), random.int(0, 9), 5] } : {}),
      ...(random.chance(0.15) ? { order: 'priority' as const } : {}),
      ...(random.chance(0.3) ? { leaseMs: random.pick([100, 300, 2000]) } : {}),
      worker: this.name,
    };
  }

  #batches(tasks: readonly LeasedTask[]): readonly (readonly LeasedTask[])[] {
    if (this.random.chance(0.4)) return [tasks];
    const { bulk } = this.world.scenario;
    return Array.from({ length: Math.ceil(tasks.length / bulk) }, (_, nth) =>
      tasks.slice(nth * bulk, (nth + 1) * bulk),
    );
  }

  async #work(tasks: readonly LeasedTask[], asked: number | undefined): Promise<void> {
    const { random } = this;
    const leaseMs = asked ?? patchOf(this.world.scenario, tasks[0]!.topic).leaseMs!;
    const ids = tasks.map(({ leaseId }) => ({ leaseId }));
    const ack: SettleRequest = { ack: ids.map((one) => ({ ...one, result: { by: this.name } })) };
    const deed = random.weighted({
      ack: 50,
      late: 8,
      twice: 5,
      nack: 12,
      dead: 2,
      extend: 6,
      progress: 4,
      release: 5,
      die: 7,
      contradict: 3,
    });
    const tookMs = deed === 'late' ? leaseMs * 1.5 : Math.min(30, leaseMs / 10);
    // Nothing new comes of being later than that, and everybody waits for it at the end.
    await this.sleep(Math.min(random.around(tookMs), leaseMs * 4));
    switch (deed) {
      case 'die':
        return;
      case 'ack':
      case 'late':
        return this.#insist(ack);
      case 'twice':
        await Promise.all([this.settle(ack), this.settle(ack)]);
        await this.settle(ack);
        return;
      case 'nack':
        return this.#insist({ nack: ids.map((one) => ({ ...one, ...this.#nack() })) });
      case 'dead':
        return this.#insist({ nack: ids.map((one) => ({ ...one, dead: true, reason: 'hopeless' })) });
      case 'release':
        return this.#insist({ release: ids });
      case 'extend':
        for (let times = random.int(1, 4); times > 0 && !this.world.quiet; times--) {
          const extended = await this.settle({ extend: ids.map((one) => ({ ...one, leaseMs })) });
          if (extended.kind !== 'ok' || !extended.value.extend.some(({ ok }) => ok)) break;
          await this.sleep(random.around(leaseMs / 2));
        }
        return this.#insist(ack);
      case 'progress':
        await this.settle({ progress: ids.map((one) => ({ ...one, position: { at: random.int(1, 9) } })) });
        return random.chance(0.5) ? undefined : this.#insist(ack);
      case 'contradict':
        await Promise.all([
          this.settle(ack),
          this.settle({ nack: ids.map((one) => ({ ...one, delayMs: 0 })) }),
          this.settle({ release: ids }),
        ]);
    }
  }

  #nack() {
    const { random } = this;
    return {
      ...(random.chance(0.5) ? { delayMs: random.pick([0, 0, 30, 400]) } : {}),
      ...(random.chance(0.3) ? { reason: 'not now' } : {}),
    };
  }

  /** Settles, again where the answer did not arrive. */
  async #insist(request: SettleRequest): Promise<void> {
    for (let tries = 0; tries < 3; tries++) {
      const answer = await this.settle(request);
      if (answer.kind === 'ok') return;
      await this.sleep(this.random.around(30));
    }
  }
}

const SQUATS_MS = 300_000;

/** Keeps one task for as long as it is allowed to. */
export class Squatter extends Worker {
  override async run(): Promise<void> {
    const { squatEveryMs } = this.world.scenario;
    const leaseMs = 4 * squatEveryMs;
    while (!this.world.quiet) {
      const answer = await this.lease({ max: 1, waitMs: 1000, leaseMs, worker: this.name });
      const task = answer.kind === 'ok' ? answer.value[0] : undefined;
      if (task === undefined) {
        await this.pause(50);
        continue;
      }
      // Five minutes are enough, also where everybody else takes hours.
      for (let until = this.world.loop.now + SQUATS_MS; this.world.loop.now < until && !this.world.quiet; ) {
        await this.sleep(squatEveryMs);
        const extended = await this.settle({ extend: [{ leaseId: task.leaseId, leaseMs }] });
        if (extended.kind === 'ok' && !extended.value.extend[0]!.ok) break;
      }
      await this.settle({ ack: [{ leaseId: task.leaseId }] });
    }
  }
}
