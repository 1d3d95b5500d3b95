/** What a queue measures of its own work since its start. A measurement is an addition or two: nothing here is sampled or thinned out. */

/** How often what was measured came to how much. */
export class Distribution {
  /** Upper bounds of the classes, rising; there is one more class, for what is above all of them. */
  readonly bounds: readonly number[];
  /** How many were in each class. */
  readonly counts: number[];
  sum = 0;
  count = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    let at = 0;
    while (at < this.bounds.length && value > this.bounds[at]!) at++;
    this.counts[at]!++;
    this.sum += value;
    this.count++;
  }
}

/** Calls of one kind. */
export interface CallMeasures {
  /** How long they took, those that failed included; in seconds. */
  readonly seconds: Distribution;
  failed: number;
}

/** Since the start of the queue; it goes on counting in what it has handed out. */
export interface QueueMeasures {
  /** Calls that put tasks in, until they are on disk; in seconds. */
  readonly enqueue: Distribution;
  /** Calls that brought tasks, from when there was something to take; in seconds. */
  readonly lease: Distribution;
  /** Calls that settle, extend or save; in seconds. */
  readonly settle: Distribution;
  /** How long each task that was handed out here was ready for it; in seconds. */
  readonly wait: Distribution;
  /** How old each task was that was acknowledged here, from its enqueue on; in seconds. */
  readonly ageAtSuccess: Distribution;
  /** Passes of the completion scanner over a log; in seconds. */
  readonly scannerPasses: CallMeasures;
  /** For how long the pass of some log has been due; in seconds. */
  readonly scannerLateSeconds: number;
  /** Calls of the store by their name. */
  readonly storeCalls: ReadonlyMap<string, CallMeasures>;
  /** Rows that went into one write of the store, by its name. */
  readonly batches: ReadonlyMap<string, Distribution>;
  /** Calls of other servers by their name; one that got no answer failed. */
  readonly peerCalls: ReadonlyMap<string, CallMeasures>;
}

const CALL_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const STORE_SECONDS = [0.0005, 0.002, 0.01, 0.05, 0.2, 1, 5];
const PEER_SECONDS = [0.002, 0.01, 0.05, 0.2, 1, 5, 30];
const WAIT_SECONDS = [0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400];
const BATCH_ROWS = [1, 2, 5, 10, 20, 50, 100, 200];

export class Measures implements QueueMeasures {
  readonly enqueue = new Distribution(CALL_SECONDS);
  readonly lease = new Distribution(CALL_SECONDS);
  readonly settle = new Distribution(CALL_SECONDS);
  readonly wait = new Distribution(WAIT_SECONDS);
  readonly ageAtSuccess = new Distribution(WAIT_SECONDS);
  readonly scannerPasses = callMeasures(CALL_SECONDS);
  scannerLateSeconds = 0;
  readonly storeCalls = new Map<string, CallMeasures>();
  readonly batches = new Map<string, Distribution>();
  readonly peerCalls = new Map<string, CallMeasures>();

  storeCall(name: string): CallMeasures {
    return ofKey(this.storeCalls, name, () => callMeasures(STORE_SECONDS));
  }

  peerCall(name: string): CallMeasures {
    return ofKey(this.peerCalls, name, () => callMeasures(PEER_SECONDS));
  }

  batch(name: string): Distribution {
    return ofKey(this.batches, name, () => new Distribution(BATCH_ROWS));
  }
}

/**
 * Makes a call and measures it. Answers with the call's own promise, so that nothing happens later for it.
 *
 * @param clock milliseconds since any moment
 * @param hasFailed whether what it rejected with counts as a failure; anything does when absent
 */
export function measured<T>(
  measures: CallMeasures,
  clock: () => number,
  call: () => Promise<T>,
  hasFailed: (error: unknown) => boolean = () => true,
): Promise<T> {
  const startedAt = clock();
  const answer = call();
  const end = (): void => measures.seconds.observe((clock() - startedAt) / 1000);
  answer.then(end, (error: unknown) => {
    end();
    if (hasFailed(error)) measures.failed++;
  });
  return answer;
}

const callMeasures = (bounds: readonly number[]): CallMeasures => ({ seconds: new Distribution(bounds), failed: 0 });

function ofKey<T>(map: Map<string, T>, key: string, make: () => T): T {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}
