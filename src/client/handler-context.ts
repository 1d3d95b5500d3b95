import { AsyncLocalStorage } from 'node:async_hooks';

interface Frame {
  readonly subscriber: object;
  /** Until the handler has returned: what it started may outlive it, and is free then. */
  isRunning: boolean;
  /** The handler in which this subscriber was started. */
  readonly outer: Frame | undefined;
}

const frames = new AsyncLocalStorage<Frame>();

/** Runs a handler, so that what it calls can tell. */
export async function asHandlerOf<T>(subscriber: object, handler: () => T | Promise<T>): Promise<T> {
  const frame: Frame = { subscriber, isRunning: true, outer: frames.getStore() };
  try {
    return await frames.run(frame, async () => handler());
  } finally {
    frame.isRunning = false;
  }
}

/** Whether the caller is a running handler of such a subscriber, or was called by one. */
export function isInHandlerOf(matches: (subscriber: object) => boolean): boolean {
  for (let frame = frames.getStore(); frame !== undefined; frame = frame.outer) {
    if (frame.isRunning && matches(frame.subscriber)) return true;
  }
  return false;
}
