import { invalid } from '../core/errors.ts';
import { checkFields } from '../core/fields.ts';
import { optionalInteger } from '../core/numbers.ts';
import type { TlsSource } from '../core/tls.ts';
import type { Backend } from './backend.ts';
import { Connection } from './connection.ts';
import type { ClientContext, Trouble } from './context.ts';
import type { Drainable, TwoPhase } from './drainable.ts';
import { ClientClosedError, DrainInHandlerError, handled, sayError } from './errors.ts';
import { isInHandlerOf } from './handler-context.ts';
import { HttpQueue } from './http-queue.ts';
import { checkKey, keyFromEnvironment } from './key.ts';
import { Publisher } from './publisher.ts';
import { Subscriber, type SubscriberOptions } from './subscriber.ts';
import type { TaskOf } from './task.ts';
import { type AnyTopics, TopicBook, type TopicName, type TopicSchemas } from './topics.ts';
import { Turns } from './turns.ts';

export interface ClientOptions<T extends TopicSchemas = AnyTopics> {
  /** Types and schemas of payloads; see `defineTopics`. The client then takes no other topics. */
  readonly topics?: T;
  /**
   * The API key, for a server that asks for one; when absent, the one in EBBMARK_KEY, or in the file that EBBMARK_KEY_FILE
   * names, if there is any.
   */
  readonly key?: string;
  /** How long the server may take to answer, in milliseconds, beyond what a call waits for; 10,000 when absent. */
  readonly requestTimeoutMs?: number;
  /**
   * How long a publish, a wait for a result or a settlement is tried again, from its first failure on, while the
   * server cannot be reached or says that it could in a moment; in milliseconds, 60,000 when absent. Subscribers try
   * to lease for as long as they live.
   */
  readonly retryMs?: number;
  /**
   * For an address of https: who signs the server's certificate (those that Node trusts when absent), and the
   * certificate to show where the server asks for one. As a function it is asked at each call, and is to return the same
   * object until something is renewed.
   */
  readonly tls?: TlsSource;
  /**
   * Told of what went wrong in the background, for a log; the client goes on. When absent, all but what handlers throw
   * is a warning of the process.
   */
  readonly onError?: (error: unknown, trouble: Trouble) => void;
}

const LONGEST_MS = 2 ** 31 - 1;
const RESULT_WAIT_MS = 20_000;
/** Waits for results over the network: a quarter of the connections that a server has where nobody says otherwise. */
const RESULTS_AT_ONCE = 256;
const OPTIONS: ReadonlySet<string> = new Set<keyof ClientOptions>([
  'topics',
  'key',
  'requestTimeoutMs',
  'retryMs',
  'tls',
  'onError',
]);

/**
 * Publishers and subscribers of one queue. None of its promises ends the process when it rejects unheard.
 *
 *     const client = new Client('http://127.0.0.1:8080');
 *     const handle = await client.publisher().publish('mail.example.org', { to: 'ada@example.org' });
 */
export class Client<T extends TopicSchemas = AnyTopics> implements TwoPhase {
  readonly #context: ClientContext;
  readonly #letGo: () => void;
  readonly #parts = new Set<Drainable>();
  #isDraining = false;
  #isClosed = false;
  #drain: Promise<void> | null = null;

  /**
   * @param queue a server's address, or a queue that was opened in this process, which is then no business of the
   *   client's to stop
   * @throws QueueError `invalid-input`, `topic-invalid`
   */
  constructor(queue: string | URL | Backend, options: ClientOptions<T> = {}) {
    checkFields(options, '', "a client's options", OPTIONS, '{"retryMs": 60000}');
    const requestTimeoutMs = optionalInteger(options.requestTimeoutMs, '/requestTimeoutMs', 1, LONGEST_MS) ?? 10_000;
    const retryMs = optionalInteger(options.retryMs, '/retryMs', 0, LONGEST_MS) ?? 60_000;
    const report = reporter(options.onError);
    const isRemote = typeof queue === 'string' || queue instanceof URL;
    const key = options.key === undefined ? undefined : checkKey(options.key, '/key');
    const remote = isRemote
      ? new HttpQueue(queue, { requestTimeoutMs, key: key ?? keyFromEnvironment(), tls: options.tls })
      : null;
    const connection = new Connection(isRemote, (error) => report(error, { during: 'connection' }));
    this.#context = {
      backend: isRemote ? remote! : checkBackend(queue),
      connection,
      topics: new TopicBook(options.topics ?? null),
      resultTurns: new Turns(isRemote ? RESULTS_AT_ONCE : Number.POSITIVE_INFINITY, RESULT_WAIT_MS),
      requestTimeoutMs,
      retryMs,
      report,
    };
    this.#letGo = () => {
      connection.close();
      remote?.close();
    };
  }

  publisher(): Publisher<T> {
    return this.#add((onClosed) => new Publisher<T>(this.#context, onClosed));
  }

  /**
   * @param topics names, or prefixes that end with `*`
   * @throws QueueError `invalid-input`, `topic-invalid`
   */
  subscriber<const N extends TopicName<T>>(
    topics: N | readonly N[],
    options: SubscriberOptions = {},
  ): Subscriber<TaskOf<T, N>> {
    const names: readonly string[] = typeof topics === 'string' ? [topics] : topics;
    return this.#add((onClosed) => new Subscriber<TaskOf<T, N>>(this.#context, names, options, onClosed));
  }

  get draining(): boolean {
    return this.#isDraining;
  }

  startDraining(): void {
    this.#isDraining = true;
    for (const part of this.#parts) part.startDraining();
  }

  drain(): Promise<void> {
    this.#drain ??= handled(this.#drainAll());
    return isInHandlerOf((subscriber) => this.#parts.has(subscriber as Drainable))
      ? handled(Promise.reject(new DrainInHandlerError()))
      : this.#drain;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#isDraining = true;
    for (const part of [...this.#parts]) part.close();
    this.#letGo();
  }

  async #drainAll(): Promise<void> {
    if (this.#isClosed) throw new ClientClosedError();
    this.startDraining();
    try {
      await Promise.all([...this.#parts].map((part) => part.finish()));
    } finally {
      this.close();
    }
  }

  #add<P extends Drainable>(make: (onClosed: () => void) => P): P {
    const part = make(() => this.#parts.delete(part));
    this.#parts.add(part);
    if (this.#isClosed) part.close();
    else if (this.#isDraining) part.startDraining();
    return part;
  }
}

function reporter(onError: ClientOptions['onError']): ClientContext['report'] {
  return (error, trouble) => {
    const { during, topic, id } = trouble;
    try {
      if (onError !== undefined) onError(error, trouble);
      // The reason of a task that failed stands with the task.
      else if (during !== 'handler') {
        // What stands behind the ~ is the message id, which may be a URL with a token in it.
        warn(id === undefined ? during : `${during}, task ${id.split('~', 1)[0]} of ${topic}`, error);
      }
    } catch (failure) {
      warn('onError', failure);
    }
  };
}

const warn = (where: string, error: unknown): void =>
  process.emitWarning(`${where}: ${sayError(error)}`, 'EbbmarkClientWarning');

function checkBackend(queue: Backend): Backend {
  for (const call of ['enqueue', 'lease', 'settle', 'task'] as const) {
    if (typeof queue?.[call] !== 'function') {
      throw invalid('/queue', queue, 'an address or an open queue', '"http://127.0.0.1:8080", or await openQueue(…)');
    }
  }
  return queue;
}
