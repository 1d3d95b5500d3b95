import { Agent, buildConnector } from 'undici';
import { ERROR_CODES, type ErrorCode, type InputIssue, QueueError } from '../core/errors.ts';
import { currentTls, type TlsCredentials, type TlsSource } from '../core/tls.ts';
import type { NodeRow } from '../store/store.ts';
import type { TaskPayload } from './api.ts';
import { type QueueLogger, silentLogger } from './engine.ts';
import {
  type PeerCallOptions,
  type PeerCalls,
  type PeerMethod,
  PeerUnreachableError,
  type Transport,
} from './peers.ts';

/** Where a server answers others, behind its address. */
export const PEER_PATH = '/internal/peers';

interface ProblemBody {
  readonly code?: string;
  readonly detail?: string;
  readonly errors?: readonly InputIssue[];
}

/** Calls other servers by HTTP, or by HTTPS where their address says so. */
export class HttpTransport implements Transport {
  readonly #agent: Agent;
  readonly #log: QueueLogger;
  /** Who answered by TLS, and so has admitted us. */
  readonly #admittedBy = new Set<string>();
  /** Whose TLS was told of; a server that is called every second would else fill the log. */
  readonly #told = new Set<string>();

  /** @param tls what proves who we are, and whom to believe */
  constructor(tls: TlsSource = {}, log: QueueLogger = silentLogger) {
    this.#agent = new Agent({ connect: connectorOf(tls) });
    this.#log = log;
  }

  async call<M extends PeerMethod>(
    node: NodeRow,
    method: M,
    body: PeerCalls[M]['body'],
    { signal, timeoutMs }: PeerCallOptions,
  ): Promise<PeerCalls[M]['answer']> {
    if (node.address === null) throw new PeerUnreachableError('it listens nowhere');
    // Not by AbortSignal.any: in Node 20 the time-out of a combined signal may be collected, and the call then never ends.
    const ending = new AbortController();
    const end = (): void => ending.abort();
    const timer = setTimeout(end, timeoutMs);
    signal?.addEventListener('abort', end, { once: true });
    if (signal?.aborted) end();
    let status: number;
    let answer: unknown;
    try {
      const { origin, pathname } = new URL(node.address);
      const response = await this.#agent.request({
        origin,
        path: `${pathname.replace(/\/$/, '')}${PEER_PATH}/${method}`,
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${node.secret}` },
        body: JSON.stringify(body),
        signal: ending.signal,
      });
      status = response.statusCode;
      answer = await response.body.json();
      this.#admittedBy.add(node.address);
    } catch (error) {
      this.#tell(node.address, error);
      throw new PeerUnreachableError(`${node.address} gave no answer`, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
    }
    if (status === 200) return bytesFromWire(answer) as PeerCalls[M]['answer'];
    const { code, detail, errors } = answer as ProblemBody;
    // Another server has its address by now, or it is something else altogether.
    if (code === undefined || !Object.hasOwn(ERROR_CODES, code) || code === 'forbidden' || code === 'not-found') {
      throw new PeerUnreachableError(`${node.address} is another server`);
    }
    throw new QueueError(code as ErrorCode, detail, errors);
  }

  /** A certificate that is not accepted, here or there, passes by itself as little as it is noticed. */
  #tell(address: string, error: unknown): void {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    // Who is not admitted by TLS 1.3 learns no more than that the connection was closed.
    const isRefused = code === 'UND_ERR_SOCKET' && address.startsWith('https:') && !this.#admittedBy.has(address);
    if ((!isRefused && !TLS_FAULT.test(code)) || this.#told.has(`${address} ${code}`)) return;
    this.#told.add(`${address} ${code}`);
    this.#log.warn({ address, code }, 'another server cannot be called; look at the certificates here and there');
  }
}

/** Codes of OpenSSL's checks and of Node's. */
const TLS_FAULT = /^(?:ERR_TLS_|ERR_SSL_|CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|INVALID_CA|INVALID_PURPOSE|EPROTO)/;

/** Makes connections with what is right at the time. */
function connectorOf(source: TlsSource): buildConnector.connector {
  let known: TlsCredentials | null = null;
  let connector = buildConnector({});
  return (options, callback) => {
    const tls = currentTls(source);
    if (tls !== known) {
      known = tls;
      connector = buildConnector({ ...tls, minVersion: 'TLSv1.2' });
    }
    connector(options, callback);
  };
}

type WithTasks = { readonly tasks?: readonly { readonly payload?: TaskPayload; readonly payloadBase64?: string }[] };

/** An answer with bytes as base64, wherever it has tasks. */
export const bytesToWire = (answer: unknown): unknown =>
  mapTasks(answer, ({ payload, ...rest }) =>
    payload instanceof Uint8Array
      ? { ...rest, payloadBase64: Buffer.from(payload).toString('base64') }
      : { ...rest, payload },
  );

const bytesFromWire = (answer: unknown): unknown =>
  mapTasks(answer, ({ payloadBase64, ...rest }) =>
    payloadBase64 === undefined ? rest : { ...rest, payload: new Uint8Array(Buffer.from(payloadBase64, 'base64')) },
  );

function mapTasks(answer: unknown, map: (task: NonNullable<WithTasks['tasks']>[number]) => unknown): unknown {
  if (typeof answer !== 'object' || answer === null) return answer;
  const { tasks, value, ...rest } = answer as WithTasks & { readonly value?: unknown };
  return {
    ...rest,
    ...(tasks === undefined ? {} : { tasks: tasks.map(map) }),
    ...(value === undefined ? {} : { value: mapTasks(value, map) }),
  };
}
