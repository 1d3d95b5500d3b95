/** A promise with what settles it. */
export interface Deferred {
  readonly promise: Promise<void>;
  resolve(): void;
  reject(reason: unknown): void;
}

export function deferred(): Deferred {
  let resolve = (): void => {};
  let reject = (_reason: unknown): void => {};
  const promise = new Promise<void>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}
