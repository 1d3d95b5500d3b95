/** A process of its own that offers tasks at a given rate, whatever becomes of them. */
import { setTimeout as wait } from 'node:timers/promises';
import { Pool } from 'undici';
import { answerOrders } from './child.ts';
import { type Percentiles, Times } from './rounds.ts';

export interface OfferOrder {
  readonly origin: string;
  readonly topic: string;
  /** Tasks a second, and in a call. */
  readonly perSecond: number;
  readonly tasksEach: number;
  readonly durationMs: number;
  readonly connections: number;
}

/** Percentiles are of the answers that a task was accepted. */
export interface OfferReport extends Percentiles {
  /** Sent, of those that were due. */
  readonly offered: number;
  /** Ids of tasks that were acknowledged. */
  readonly accepted: readonly string[];
  /** Answered with 503 `busy` and a `Retry-After`. */
  readonly refused: number;
  /** When the last of them was sent, in milliseconds since 1970; null: none was. */
  readonly lastRefusedAt: number | null;
  /** Answered in any other way, or not at all. */
  readonly failed: number;
}

const TICK_MS = 5;
/** Calls that wait for an answer or a connection; what is due while there are so many is not sent. */
const MOST_UNDER_WAY = 2_000;

answerOrders<OfferOrder, OfferReport>(async ({ origin, topic, perSecond, tasksEach, durationMs, connections }) => {
  const pool = new Pool(origin, { connections });
  const times = new Times();
  const accepted: string[] = [];
  let offered = 0;
  let refused = 0;
  let lastRefusedAt: number | null = null;
  let failed = 0;
  const underWay = new Set<Promise<void>>();

  const offer = async (): Promise<void> => {
    const sentAt = Date.now();
    const startedAt = performance.now();
    try {
      const { statusCode, headers, body } = await pool.request({
        method: 'POST',
        path: `/v1/topics/${topic}/tasks`,
        headers: { 'content-type': 'application/json' },
        // When it was sent, for who works on it.
        body: JSON.stringify({ tasks: Array.from({ length: tasksEach }, () => ({ payload: sentAt })) }),
      });
      if (statusCode === 201) {
        const { tasks } = (await body.json()) as { readonly tasks: readonly { readonly id: string }[] };
        times.add(performance.now() - startedAt);
        for (const { id } of tasks) accepted.push(id);
        return;
      }
      await body.dump();
      if (statusCode === 503 && headers['retry-after'] !== undefined) {
        refused += tasksEach;
        lastRefusedAt = Math.max(lastRefusedAt ?? 0, sentAt);
      } else failed += tasksEach;
    } catch {
      failed += tasksEach;
    }
  };

  const start = performance.now();
  for (let due = 0; ; ) {
    const elapsed = performance.now() - start;
    if (elapsed >= durationMs) break;
    for (; due < (elapsed * perSecond) / 1_000; due += tasksEach) {
      if (underWay.size >= MOST_UNDER_WAY) continue;
      offered += tasksEach;
      const call = offer().finally(() => underWay.delete(call));
      underWay.add(call);
    }
    await wait(TICK_MS);
  }
  await Promise.all(underWay);
  await pool.close();
  return { offered, accepted, refused, lastRefusedAt, failed, ...times.percentiles() };
});
