import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';

type Answer<Report> = { readonly result: Report } | { readonly error: string };

/** A process that carries out one order at a time and answers each with a report. */
export class Child<Order extends object, Report> {
  readonly #process: ChildProcess;

  /** @param file beside this one, for example `load.ts` */
  constructor(file: string, args: readonly string[] = []) {
    // What it says goes to stderr: stdout holds the figures alone.
    this.#process = fork(new URL(file, import.meta.url), [...args], { stdio: ['ignore', 2, 2, 'ipc'] });
  }

  async ask(order: Order): Promise<Report> {
    const ended = new AbortController();
    try {
      this.#process.send(order);
      const answer = await Promise.race([
        once(this.#process, 'message', ended) as Promise<[Answer<Report>]>,
        once(this.#process, 'exit', ended).then(([code]) => {
          throw new Error(`a process of the bench ended with ${code}`);
        }),
      ]);
      const [message] = answer;
      if ('error' in message) throw new Error(message.error);
      return message.result;
    } finally {
      ended.abort();
    }
  }

  /** @param signal SIGKILL where it is to have no time to do anything */
  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const exit = once(this.#process, 'exit');
    this.#process.kill(signal);
    await exit;
  }
}

/** The other side: answers every order that arrives, and ends with the process that gives them. */
export function answerOrders<Order, Report>(carryOut: (order: Order) => Promise<Report>): void {
  process.once('disconnect', () => process.exit());
  process.on('message', (order: Order) => {
    carryOut(order).then(
      (result) => process.send?.({ result }),
      (error: unknown) =>
        process.send?.({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) }),
    );
  });
}
