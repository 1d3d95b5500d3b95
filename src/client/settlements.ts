import { jsonText } from '../core/json.ts';
import type { JsonValue, SettleItem, SettleRequest } from '../queue/api.ts';
import type { Backend } from './backend.ts';
import { Batcher } from './batcher.ts';
import type { Connection } from './connection.ts';

type Items = { readonly [K in keyof SettleRequest]-?: NonNullable<SettleRequest[K]>[number] };
type Kind = keyof Items;
/** One item of a settlement, with the list that it goes into. */
type Entry = { readonly [K in Kind]: { readonly kind: K; readonly item: Items[K] } }[Kind];

export type Nack = Omit<Items['nack'], 'leaseId'>;

/** What an item adds to a call beside what it carries, roughly. */
const ITEM_BYTES = 100;

/**
 * Settlements of a subscriber, those that come up together in one call. All may be sent again: one that
 * is repeated is answered as the first was.
 */
export class Settlements {
  readonly #backend: Backend;
  readonly #connection: Connection;
  readonly #closing: AbortSignal;
  readonly #retryMs: number;
  readonly #extendForMs: number;
  readonly #endings = new Batcher<Entry, SettleItem>((entries) => this.#send(entries));
  readonly #extensions = new Batcher<Items['extend'], SettleItem>((extend) => this.#extend(extend));

  /**
   * @param retryMs how long settlements are tried
   * @param extendForMs how long extensions are: until the lease ends, since one that comes later would revive it for nobody
   */
  constructor(
    {
      backend,
      connection,
      retryMs,
    }: { readonly backend: Backend; readonly connection: Connection; readonly retryMs: number },
    closing: AbortSignal,
    extendForMs: number,
  ) {
    this.#backend = backend;
    this.#connection = connection;
    this.#closing = closing;
    this.#retryMs = retryMs;
    this.#extendForMs = extendForMs;
  }

  /** @throws QueueError `invalid-input` where the result has no JSON text */
  ack(leaseId: string, result: JsonValue | undefined): Promise<SettleItem> {
    if (result === undefined) return this.#endings.add({ kind: 'ack', item: { leaseId } }, ITEM_BYTES);
    const bytes = jsonText(result, '/result').length;
    return this.#endings.add({ kind: 'ack', item: { leaseId, result } }, ITEM_BYTES + bytes);
  }

  nack(leaseId: string, nack: Nack): Promise<SettleItem> {
    return this.#endings.add({ kind: 'nack', item: { leaseId, ...nack } }, ITEM_BYTES + (nack.reason?.length ?? 0));
  }

  release(leaseId: string): Promise<SettleItem> {
    return this.#endings.add({ kind: 'release', item: { leaseId } }, ITEM_BYTES);
  }

  /** @throws QueueError `invalid-input` where the position has no JSON text */
  progress(leaseId: string, position: JsonValue): Promise<SettleItem> {
    const bytes = jsonText(position, '/position').length;
    return this.#endings.add({ kind: 'progress', item: { leaseId, position } }, ITEM_BYTES + bytes);
  }

  extend(leaseId: string, leaseMs: number): Promise<SettleItem> {
    return this.#extensions.add({ leaseId, leaseMs }, ITEM_BYTES);
  }

  async #extend(extend: readonly Items['extend'][]): Promise<readonly SettleItem[]> {
    const answer = await this.#connection.call(() => this.#backend.settle({ extend }), {
      forMs: this.#extendForMs,
      signal: this.#closing,
    });
    return answer.extend;
  }

  async #send(entries: readonly Entry[]): Promise<readonly SettleItem[]> {
    const request: { readonly [K in Kind]: Items[K][] } = { ack: [], nack: [], extend: [], progress: [], release: [] };
    const places = entries.map((entry) => [entry.kind, put(request, entry)] as const);
    const answer = await this.#connection.call(() => this.#backend.settle(request), {
      forMs: this.#retryMs,
      signal: this.#closing,
    });
    return places.map(([kind, at]) => answer[kind][at]!);
  }
}

/** @returns its place in its list */
function put<K extends Kind>(
  request: { readonly [L in Kind]: Items[L][] },
  { kind, item }: { readonly kind: K; readonly item: Items[K] },
): number {
  return request[kind].push(item) - 1;
}
