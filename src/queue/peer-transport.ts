import { ERROR_CODES, type ErrorCode, type InputIssue, QueueError } from '../core/errors.ts';
import type { NodeRow } from '../store/store.ts';
import type { TaskPayload } from './api.ts';
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

/** Calls other servers by HTTP. */
export const httpTransport: Transport = {
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
    let response: Response;
    let answer: unknown;
    try {
      response = await fetch(`${node.address}${PEER_PATH}/${method}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${node.secret}` },
        body: JSON.stringify(body),
        signal: ending.signal,
      });
      answer = await response.json();
    } catch (error) {
      throw new PeerUnreachableError(`${node.address} gave no answer`, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
    }
    if (response.ok) return bytesFromWire(answer) as PeerCalls[M]['answer'];
    const { code, detail, errors } = answer as ProblemBody;
    // Another server has its address by now, or it is something else altogether.
    if (code === undefined || !Object.hasOwn(ERROR_CODES, code) || code === 'forbidden' || code === 'not-found') {
      throw new PeerUnreachableError(`${node.address} is another server`);
    }
    throw new QueueError(code as ErrorCode, detail, errors);
  },
};

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
