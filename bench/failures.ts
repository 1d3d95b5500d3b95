/**
 * Where the errors of a client are seen: at each call to the queue, since those that the client makes again until they
 * succeed show nowhere else; and, of what goes wrong without a call that fails (a settlement that is refused), as the
 * client tells it.
 */
import type { Backend } from '../src/client/backend.ts';
import type { Trouble } from '../src/client/index.ts';
import type { CountedError, Windows } from './windows.ts';

/** The queue, of which each call that fails is counted. */
export function countFailures(queue: Backend, windows: Windows): Backend {
  const counted = async <T>(call: Promise<T>, kind?: CountedError): Promise<T> => {
    try {
      return await call;
    } catch (error) {
      windows.error(error, kind);
      throw error;
    }
  };
  return {
    enqueue: (...args) => counted(queue.enqueue(...args)),
    task: (...args) => counted(queue.task(...args)),
    lease: (request) => counted(queue.lease(request), 'pull_errors'),
    settle: (request) => counted(queue.settle(request), 'completion_errors'),
  };
}

/** A client's `onError`. */
export function countTrouble(windows: Windows): (error: unknown, trouble: Trouble) => void {
  return (error, { during }) => {
    if (during === 'lease') windows.error(error, 'pull_errors');
    else if (during === 'settle' || during === 'extend') windows.error(error, 'completion_errors');
    else windows.error(error);
  };
}
