import { Client, type World } from './client.ts';
import { Random } from './random.ts';
import type { PlannedSchedule } from './scenario.ts';

/** Longer than servers are ever replaced one after the other, before one is there for long enough to fire anything. */
const CATCH_UP_MS = 3_600_000;

/** Keeps a schedule: makes it, sets it again with other payloads, and deletes it. */
export class Planner extends Client {
  readonly #plan: PlannedSchedule;
  #version = 0;

  constructor(plan: PlannedSchedule, world: World) {
    super('planner', new Random(plan.seed), world);
    this.#plan = plan;
  }

  /** Before anything goes wrong. */
  async make(): Promise<void> {
    await this.insistOn(this.#plan.topic, this.#plan.patch);
    while ((await this.#set()).kind !== 'ok') await this.sleep(this.random.around(50));
  }

  async run(): Promise<void> {
    while (!this.world.quiet) {
      // Others wait for it at the end, for no more than twice this.
      await this.sleep(Math.min(this.random.around(1_500), 2_000) * this.world.scenario.stretch);
      if (!this.world.quiet) await this.#set();
    }
  }

  /** Once nothing goes wrong any more, and all that was due by then has fired. */
  async end(): Promise<void> {
    const { name } = this.#plan;
    const due = this.world.cluster.clock;
    for (;;) {
      const answer = await this.call('schedule', { name }, (queue) => queue.schedule(name));
      if (answer.kind === 'ok' && answer.value.nextAt! > due) break;
      await this.sleep(100);
    }
    for (;;) {
      const answer = await this.call('deleteSchedule', { name }, async (queue) => {
        await queue.deleteSchedule(name);
        return null;
      });
      if (answer.kind === 'ok' || (answer.kind === 'refused' && answer.code === 'schedule-not-found')) return;
      await this.sleep(100);
    }
  }

  #set() {
    const { name, topic, pattern } = this.#plan;
    const input = { topic, pattern, payload: { version: this.#version++ }, catchUpMs: CATCH_UP_MS };
    return this.call('setSchedule', { name, input }, (queue) => queue.setSchedule(name, input));
  }
}
