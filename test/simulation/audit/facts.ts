/** The history of calls, put together by task and by lease. Knows only what clients saw. */

import type { TopicSettings } from '../../../src/core/settings.ts';
import type { LeasedTask, TaskInfo } from '../../../src/queue/api.ts';
import type { AnyCall, Call, CallKind, History, SentTask } from '../history.ts';

export type SettleKind = 'ack' | 'nack' | 'extend' | 'progress' | 'release';
const ENDING: ReadonlySet<SettleKind> = new Set(['ack', 'nack', 'release']);

/** One try to put a task in. */
export interface Attempt {
  readonly call: Call<'enqueue'>;
  readonly sent: SentTask;
  readonly topic: string;
  /** The message id by which the queue knows it, if it has one. */
  readonly messageId: string | null;
  /**
   * - `accepted`: a task of its own, with this id;
   * - `known`: answered with the task of its message id;
   * - `refused`: nothing was written, as the answer says;
   * - `doubtful`: nobody knows.
   */
  readonly fate: 'accepted' | 'known' | 'refused' | 'doubtful';
  readonly id: string | null;
}

/** What a worker asked for a lease, and what came of it. */
export interface Settlement {
  readonly call: Call<'settle'>;
  readonly kind: SettleKind;
  /** Ends the lease if it is accepted. */
  readonly ending: boolean;
  /** null: nobody knows. */
  readonly ok: boolean | null;
  readonly code: string | null;
  readonly result: unknown;
  readonly delayMs: number | null;
  readonly dead: boolean;
  /** For an extension: until when, as answered; or as it may be where nobody knows. */
  readonly until: number | null;
}

/** A delivery. */
export interface Grant {
  readonly call: Call<'lease'>;
  readonly task: LeasedTask;
  readonly topic: string;
  /** When it was handed out, by the server's clock. */
  readonly claimedAt: number;
  readonly settlements: Settlement[];
}

export interface TaskFacts {
  readonly id: string;
  readonly topic: string;
  readonly attempts: Attempt[];
  /** In the order of their calls' ends. */
  readonly grants: Grant[];
  readonly cancels: Call<'cancel'>[];
  readonly reschedules: Call<'reschedule'>[];
  /** What was seen of it after everything was worked off. */
  readonly seen: { readonly call: AnyCall; readonly info: TaskInfo | null }[];
}

/** Answers that leave open whether something was done. */
const DOUBTFUL_CODES = new Set(['outcome-unknown', 'internal']);
/** A change that failed with this one may have been done in part. */
const unsureOf = (call: AnyCall): boolean =>
  call.answer === null ||
  call.answer.kind === 'lost' ||
  (call.answer.kind === 'refused' && DOUBTFUL_CODES.has(call.answer.code));

export class Facts {
  readonly history: History;
  readonly tasks = new Map<string, TaskFacts>();
  readonly attempts: Attempt[] = [];
  readonly byToken = new Map<number, Attempt[]>();
  readonly grants: Grant[] = [];
  readonly leases = new Map<string, Grant>();
  readonly #byKind = new Map<CallKind, AnyCall[]>();

  constructor(history: History) {
    this.history = history;
    for (const call of history.calls) {
      const list = this.#byKind.get(call.kind);
      if (list === undefined) this.#byKind.set(call.kind, [call]);
      else list.push(call);
    }
    for (const call of this.calls('enqueue')) this.#enqueued(call);
    const leases = this.calls('lease').filter((call) => call.ended !== null);
    for (const call of leases.sort((a, b) => a.ended!.at - b.ended!.at)) this.#leased(call);
    for (const call of this.calls('settle')) this.#settled(call);
    for (const call of this.calls('cancel')) this.task(call.args.topic, call.args.id).cancels.push(call);
    for (const call of this.calls('reschedule')) this.task(call.args.topic, call.args.id).reschedules.push(call);
    for (const call of this.calls('task')) if (call.began.at >= history.quietFrom) this.#looked(call);
    for (const call of this.calls('list')) if (call.began.at >= history.quietFrom) this.#listed(call);
  }

  calls<K extends CallKind>(kind: K): readonly Call<K>[] {
    return (this.#byKind.get(kind) ?? []) as unknown as readonly Call<K>[];
  }

  get setup(): readonly number[] {
    return this.history.setup;
  }

  task(topic: string, id: string): TaskFacts {
    const key = `${topic}/${id}`;
    let task = this.tasks.get(key);
    if (task === undefined) {
      task = { id, topic, attempts: [], grants: [], cancels: [], reschedules: [], seen: [] };
      this.tasks.set(key, task);
    }
    return task;
  }

  settings(topic: string): TopicSettings {
    return this.history.settings.get(topic)!;
  }

  leaseMs(grant: Pick<Grant, 'call' | 'topic'>): number {
    const { leaseMs, maxRunMs } = this.settings(grant.topic);
    const asked = grant.call.args.leaseMs ?? leaseMs;
    return maxRunMs === null ? asked : Math.min(asked, maxRunMs);
  }

  #enqueued(call: Call<'enqueue'>): void {
    const { topic, tasks, key } = call.args;
    for (const [nth, sent] of tasks.entries()) {
      const result = call.answer?.kind === 'ok' ? call.answer.value[nth]! : null;
      const fate =
        result !== null
          ? result.id === null
            ? 'refused'
            : result.deduplicated
              ? 'known'
              : 'accepted'
          : unsureOf(call)
            ? 'doubtful'
            : 'refused';
      const messageId = sent.input.messageId ?? (key === undefined ? null : `idempotency-key:${key}:${nth}`);
      const attempt: Attempt = { call, sent, topic, messageId, fate, id: result?.id ?? null };
      this.attempts.push(attempt);
      const same = this.byToken.get(sent.token);
      if (same === undefined) this.byToken.set(sent.token, [attempt]);
      else same.push(attempt);
      if (attempt.id !== null) this.task(topic, attempt.id).attempts.push(attempt);
    }
  }

  #leased(call: Call<'lease'>): void {
    if (call.answer?.kind !== 'ok') return;
    for (const task of call.answer.value) {
      const { topic } = task;
      const grant: Grant = {
        call,
        task,
        topic,
        claimedAt: task.leaseUntil - this.leaseMs({ call, topic }),
        settlements: [],
      };
      this.grants.push(grant);
      this.leases.set(task.leaseId, grant);
      this.task(topic, task.id).grants.push(grant);
    }
  }

  #settled(call: Call<'settle'>): void {
    const { answer, args } = call;
    for (const kind of ['ack', 'nack', 'extend', 'progress', 'release'] as const) {
      for (const [nth, item] of (args[kind] ?? []).entries()) {
        const grant = this.leases.get(item.leaseId);
        if (grant === undefined) continue;
        const told = answer?.kind === 'ok' ? answer.value[kind][nth]! : null;
        const asked = 'leaseMs' in item ? (item.leaseMs as number) : null;
        const latest = asked === null ? null : (call.ended?.clock ?? Number.POSITIVE_INFINITY) + asked;
        grant.settlements.push({
          call,
          kind,
          ending: ENDING.has(kind),
          // A refusal of the whole call leaves open what was done: it may have failed after the fence was passed.
          ok: told === null ? null : told.ok,
          code: told !== null && !told.ok ? told.code : null,
          result: 'result' in item ? item.result : undefined,
          delayMs: 'delayMs' in item ? ((item.delayMs as number | undefined) ?? null) : null,
          dead: 'dead' in item && item.dead === true,
          until: told?.ok === true ? (told.leaseUntil ?? null) : latest,
        });
      }
    }
  }

  #looked(call: Call<'task'>): void {
    const { answer, args } = call;
    if (answer?.kind === 'ok') this.task(args.topic, args.id).seen.push({ call: call as AnyCall, info: answer.value });
    else if (answer?.kind === 'refused')
      this.task(args.topic, args.id).seen.push({ call: call as AnyCall, info: null });
  }

  #listed(call: Call<'list'>): void {
    if (call.answer?.kind !== 'ok') return;
    for (const info of call.answer.value)
      this.task(call.args.topic, info.id).seen.push({ call: call as AnyCall, info });
  }
}

/** The last moment at which a lease may still have held, by the server's clock, extensions that may have come included. */
export function heldUntil(grant: Grant): number {
  let until = grant.task.leaseUntil;
  for (const { kind, ok, until: extended } of grant.settlements) {
    if (kind === 'extend' && ok !== false && extended !== null) until = Math.max(until, extended);
  }
  return until;
}

/** Until when a lease held for sure, by the server's clock, where nobody ended it. */
export function surelyHeldUntil(grant: Grant): number {
  let until = grant.task.leaseUntil;
  for (const { kind, ok, until: extended } of grant.settlements) {
    if (kind === 'extend' && ok === true && extended !== null) until = extended;
  }
  return until;
}

/** A call as messages name it. */
export const name = (call: { readonly kind: string; readonly n: number; readonly actor: string }): string =>
  `${call.kind} #${call.n} of ${call.actor}`;

/** The token by which a payload tells the task that it was sent for. */
export const tokenOf = (payload: unknown): number | null =>
  typeof payload === 'object' && payload !== null && 't' in payload && typeof payload.t === 'number' ? payload.t : null;

/**
 * Leases of one task in the order in which they were handed out: by the clock by which they were, or, where the servers'
 * clocks differ, by their answers.
 */
export const inOrder = ({ history }: Facts, grants: readonly Grant[]): readonly Grant[] =>
  [...grants].sort((a, b) =>
    history.clockErrorMs === 0 ? a.claimedAt - b.claimedAt : a.call.ended!.at - b.call.ended!.at,
  );

/** Whether two of them may have been handed out the other way round. */
export const isOrderUnknown = ({ history }: Facts, earlier: Grant, later: Grant): boolean =>
  history.clockErrorMs > 0 && later.call.began.at <= earlier.call.ended!.at;
