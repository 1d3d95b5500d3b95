/**
 * Loaded before a server that is to fail: SIGUSR2 makes each call of SQLite fail, by turns as a disk does and in a way that nobody
 * foresaw; SIGWINCH ends the process by errors that nobody catches. All of them say everything that they know.
 */
import Database from 'better-sqlite3';

const BUG = process.env.TEST_BUG ?? '';
const telling = (what: unknown): Error =>
  Object.assign(
    new Error(`${BUG}: ${JSON.stringify(what)}\n    at ${BUG} (${BUG}:1:1)`, { cause: new TypeError(BUG) }),
    {
      code: 'ERR_UNFORESEEN',
      input: BUG,
      values: what,
    },
  );

process.on('SIGUSR2', () => {
  const statement = Object.getPrototypeOf(new Database(':memory:').prepare('SELECT 1')) as Record<string, unknown>;
  let calls = 0;
  for (const method of ['run', 'get', 'all', 'iterate']) {
    statement[method] = (...values: unknown[]) => {
      throw calls++ % 2 === 0 ? new Database.SqliteError('disk I/O error', 'SQLITE_IOERR_WRITE') : telling(values);
    };
  }
  process.stdout.write('the store fails from now on\n');
});

process.on('SIGWINCH', () => {
  setImmediate(() => {
    // Second in line, and no error at all.
    throw BUG;
  });
  throw telling(BUG);
});
