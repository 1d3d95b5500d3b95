/** What ends early. Not by AbortSignal.any: in Node 20 a combined signal may be collected while it is waited for. */

/** The outcome of a promise, or the reason of a signal that is aborted before. */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

/** @throws the signal's reason, at once when it is aborted */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  return untilAborted(over, signal).finally(() => clearTimeout(timer));
}

/** A controller that is also aborted when one of the signals is; `unlink` once it is no longer needed. */
export function abortedBy(...signals: readonly (AbortSignal | undefined)[]): {
  readonly controller: AbortController;
  readonly unlink: () => void;
} {
  const controller = new AbortController();
  const links = signals.flatMap((signal) => {
    if (signal === undefined) return [];
    const abort = (): void => controller.abort(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    return [() => signal.removeEventListener('abort', abort)];
  });
  return {
    controller,
    unlink: () => {
      for (const unlink of links) unlink();
    },
  };
}
