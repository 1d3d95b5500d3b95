import type { NodeRow } from '../store/store.ts';
import type { LeaseRequest } from './api.ts';
import type { Environment } from './environment.ts';
import type { Transport } from './peers.ts';

/** How long one question stays open, in milliseconds. */
const WAIT_MS = 20_000;
/** What another server takes beyond that to answer. */
const GRACE_MS = 5_000;
/** Calls that begin to wait at about the same time are asked for together. */
const GATHER_MS = 5;
const AGAIN_MS = 250;

export type InterestOf = Pick<LeaseRequest, 'topics' | 'priorities'>;

interface Group {
  readonly interest: InterestOf;
  readonly wakes: Set<() => void>;
}

/**
 * Waits at other servers for something to come up. One question a server is open at a time, for all that wait here; it is
 * asked anew when somebody begins to wait for something that is not in it. Others learn from it at once: what comes up
 * between a question and the next is found when the next is asked.
 */
export class PeerWaits {
  readonly #env: Environment;
  readonly #transport: Transport;
  readonly #questions = new Map<string, Question>();

  constructor(env: Environment, transport: Transport) {
    this.#env = env;
    this.#transport = transport;
  }

  /** @returns what calls the wait off */
  add(node: NodeRow, interest: InterestOf, wake: () => void): () => void {
    let question = this.#questions.get(node.id);
    if (question === undefined) {
      question = new Question(this.#env, this.#transport, node, () => this.#questions.delete(node.id));
      this.#questions.set(node.id, question);
    }
    return question.add(interest, wake);
  }

  stop(): void {
    for (const question of [...this.#questions.values()]) question.stop();
  }
}

class Question {
  readonly #env: Environment;
  readonly #transport: Transport;
  readonly #node: NodeRow;
  readonly #onEnd: () => void;
  readonly #groups = new Map<string, Group>();
  /** The groups that are asked for, in the order in which they are. */
  #asked: readonly Group[] = [];
  #abort: AbortController | null = null;
  #cancel: (() => void) | null = null;
  #ended = false;

  constructor(env: Environment, transport: Transport, node: NodeRow, onEnd: () => void) {
    this.#env = env;
    this.#transport = transport;
    this.#node = node;
    this.#onEnd = onEnd;
  }

  add(interest: InterestOf, wake: () => void): () => void {
    const key = JSON.stringify([interest.topics ?? null, interest.priorities ?? null]);
    let group = this.#groups.get(key);
    if (group === undefined) {
      group = { interest, wakes: new Set() };
      this.#groups.set(key, group);
    }
    const { wakes } = group;
    wakes.add(wake);
    if (!this.#asked.includes(group)) this.#askIn(GATHER_MS);
    return () => {
      wakes.delete(wake);
      if (wakes.size === 0 && this.#groups.get(key)?.wakes === wakes) this.#groups.delete(key);
      // Those who were woken are most likely back in a moment: the question stays open until then.
      if (this.#groups.size === 0) this.#askIn(AGAIN_MS);
    };
  }

  stop(): void {
    this.#ended = true;
    this.#cancel?.();
    this.#abort?.abort();
    this.#onEnd();
  }

  #askIn(ms: number): void {
    if (this.#ended || (this.#cancel !== null && ms > GATHER_MS)) return;
    this.#cancel?.();
    this.#cancel = this.#env.timer(ms, () => {
      this.#cancel = null;
      this.#abort?.abort();
      void this.#ask();
    });
  }

  async #ask(): Promise<void> {
    if (this.#groups.size === 0) {
      this.stop();
      return;
    }
    const groups = [...this.#groups.values()];
    const abort = new AbortController();
    this.#asked = groups;
    this.#abort = abort;
    const interests = groups.map(({ interest, wakes }) => ({ ...interest, slots: wakes.size }));
    try {
      const options = { signal: abort.signal, timeoutMs: WAIT_MS + GRACE_MS };
      const answer = await this.#transport.call(this.#node, 'wait', { interests, waitMs: WAIT_MS }, options);
      if (abort.signal.aborted) return;
      for (const { nth, ready } of answer.woken) wakeSome(groups[nth], ready);
      this.#again(GATHER_MS);
    } catch {
      // It is gone, or stops: whoever waits is woken when its shards are elsewhere.
      if (!abort.signal.aborted) this.#again(AGAIN_MS);
    }
  }

  #again(ms: number): void {
    this.#asked = [];
    this.#abort = null;
    this.#askIn(ms);
  }
}

function wakeSome(group: Group | undefined, ready: number): void {
  let left = Math.max(1, ready);
  for (const wake of [...(group?.wakes ?? [])]) {
    if (left-- <= 0) return;
    wake();
  }
}
