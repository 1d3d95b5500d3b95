import { Client } from './client.ts';
import { drawLimits } from './scenario.ts';

/** Looks at topics and tasks, and meddles with them. */
export class Operator extends Client {
  async run(): Promise<void> {
    while (!this.world.quiet) {
      await this.pause(150);
      await this.#act();
    }
  }

  async #act(): Promise<void> {
    const { random } = this;
    const topic = random.pick(this.world.scenario.topics).name;
    const known = this.world.known.length > 0 ? random.pick(this.world.known.slice(-60)) : null;
    const deed = random.weighted({
      cursors: 8,
      counts: 5,
      list: 4,
      drained: 5,
      cancel: 12,
      reschedule: 10,
      task: 8,
      redrive: 6,
      pause: 3,
      limits: this.world.scenario.limits ? 4 : 0,
      purge: 1,
    });
    switch (deed) {
      case 'cursors':
        await this.cursors(topic);
        return;
      case 'counts':
        await this.counts(topic);
        return;
      case 'list': {
        const state = random.pick(['ready', 'delayed', 'leased', 'done', 'dead', 'expired', 'cancelled'] as const);
        await this.list(topic, state);
        return;
      }
      case 'drained': {
        const timeoutMs = random.pick([0, 200, 2000]);
        await this.drained(topic, timeoutMs);
        return;
      }
      case 'cancel':
        if (known !== null) await this.call('cancel', known, (queue) => queue.cancel(known.topic, known.id));
        return;
      case 'task':
        if (known !== null) await this.task(known.topic, known.id);
        return;
      case 'reschedule': {
        if (known === null) return;
        const { bands } = this.world.scenario.topics.find(({ name }) => name === known.topic)!.patch;
        const change = {
          ...(random.chance(0.6)
            ? { priority: bands ? random.pick([1, 50, 500]) : random.pick(this.world.scenario.priorities) }
            : {}),
          ...(random.chance(0.6) ? { delayMs: random.pick([0, 50, 300, 1000]) } : {}),
        };
        await this.call('reschedule', { ...known, change }, (queue) => queue.reschedule(known.topic, known.id, change));
        return;
      }
      case 'redrive': {
        const request =
          known !== null && known.topic === topic && random.chance(0.5)
            ? { ids: [known.id] }
            : random.chance(0.5)
              ? {}
              : { limit: 2 };
        await this.call('redrive', { topic, request }, (queue) => queue.redrive(topic, request));
        return;
      }
      case 'pause':
        await this.configure(topic, { paused: true });
        await this.sleep(random.around(300));
        await this.insistOn(topic, { paused: false });
        return;
      case 'limits':
        await this.configure(topic, drawLimits(random));
        return;
      case 'purge':
        await this.call('purge', { topic }, async (queue) => {
          await queue.purge(topic);
          return null;
        });
    }
  }
}
