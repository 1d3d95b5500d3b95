import { once } from 'node:events';
import net from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { kindOfError, WINDOW_COLUMNS, Windows } from '../../bench/windows.ts';
import { HttpQueue } from '../../src/client/http-queue.ts';
import { QueueError, ResultTimeoutError, TaskFailedError } from '../../src/client/index.ts';
import { ERROR_CODES, type ErrorCode } from '../../src/core/errors.ts';
import { openQueue } from '../../src/index.ts';

describe('what a load saw, by windows', () => {
  const clock = { ms: 0 };
  const windowsOf = (count: number): Windows => {
    clock.ms = 70;
    return new Windows(count, 2_000, () => clock.ms);
  };
  const lines = (windows: Windows): readonly string[] =>
    Array.from({ length: windows.count }, (_, nth) => windows.close(nth));
  const busy = (): QueueError => new QueueError('busy');

  test('has the columns that others read', () => {
    expect(WINDOW_COLUMNS).toBe(
      'time,second,rate,p50,p99,errors,connection_lost,unavailable,broker_busy,timeouts,other,pull_errors,completion_errors',
    );
  });

  test('counts what happens between the beginning of a window and its end, and nothing before the first or behind the last', () => {
    const windows = windowsOf(2);
    windows.error(busy());
    windows.roundTrip(1);
    clock.ms = 100;
    windows.begin(0);
    windows.roundTrip(2);
    clock.ms = 2_099;
    for (let n = 0; n < 2; n++) windows.roundTrip(2);
    expect(windows.leftMs(0)).toBe(1);
    clock.ms = 2_100;
    windows.error(busy());
    clock.ms = 4_100;
    windows.error(busy());
    windows.roundTrip(1);
    expect(lines(windows)).toEqual([
      '1970-01-01T00:00:00.000Z,0,1.5,2,2,0,0,0,0,0,0,0,0',
      '1970-01-01T00:00:02.000Z,2,0,,,1,0,0,1,0,0,0,0',
    ]);
    expect(windows.total.roundTrips).toBe(3);
    expect(windows.total.errors('broker_busy')).toBe(1);
  });

  test('has as errors the sum of what callers met; those of workers stand beside it, whatever they are', () => {
    const windows = windowsOf(1);
    windows.begin(0);
    const met = ['busy', 'busy', 'not-holder', 'request-timeout', 'internal'] as const;
    for (const code of met) windows.error(new QueueError(code));
    windows.error(busy(), 'pull_errors');
    for (let n = 0; n < 3; n++) windows.error(busy(), 'completion_errors');
    expect(lines(windows)).toEqual(['1970-01-01T00:00:00.000Z,0,0,,,5,0,1,2,1,1,1,3']);
  });

  test('counts an error once that several are told of', () => {
    const windows = windowsOf(1);
    windows.begin(0);
    const error = busy();
    windows.error(error, 'pull_errors');
    windows.error(error);
    expect(windows.total.callErrors).toBe(0);
    expect(windows.total.errors('pull_errors')).toBe(1);
  });
});

describe('the kind of an error', () => {
  const failureOf = (call: Promise<unknown>): Promise<unknown> =>
    call.then(
      () => expect.unreachable(),
      (error: unknown) => error,
    );

  test('follows from the code that the server gave', () => {
    const codes = Object.keys(ERROR_CODES) as readonly ErrorCode[];
    const of = (kind: string) => codes.filter((code) => kindOfError(new QueueError(code)) === kind);
    expect(of('unavailable')).toEqual(['store-unavailable', 'outcome-unknown', 'shutting-down', 'not-holder']);
    expect(of('broker_busy')).toEqual(['busy']);
    expect(of('timeouts')).toEqual(['request-timeout']);
    expect(of('connection_lost')).toEqual([]);
    expect(of('other')).toHaveLength(codes.length - 6);
  });

  test('is a lost connection where no server is, or it breaks off', async () => {
    const server = net.createServer((socket) => socket.once('data', () => socket.destroy())).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const queue = new HttpQueue(`http://127.0.0.1:${(server.address() as net.AddressInfo).port}`);
    onTestFinished(() => queue.close());
    expect(kindOfError(await failureOf(queue.lease()))).toBe('connection_lost');
    server.close();
    await once(server, 'close');
    expect(kindOfError(await failureOf(queue.lease()))).toBe('connection_lost');
  });

  test('is a time-out where a server does not answer, or a result does not come, in time', async () => {
    const sockets = new Set<net.Socket>();
    const silent = net.createServer((socket) => sockets.add(socket.on('error', () => {}))).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const url = `http://127.0.0.1:${(silent.address() as net.AddressInfo).port}`;
    const queue = new HttpQueue(url, { requestTimeoutMs: 50 });
    onTestFinished(() => {
      queue.close();
      for (const socket of sockets) socket.destroy();
      silent.close();
    });
    expect(kindOfError(await failureOf(queue.lease()))).toBe('timeouts');
    expect(kindOfError(new ResultTimeoutError('mail', 'id', 5))).toBe('timeouts');
  });

  test('is another one for all else', async () => {
    const queue = await openQueue({ store: 'sqlite::memory:' });
    onTestFinished(() => queue.stop());
    const { id } = await queue.enqueue('mail', { payload: 1 });
    const cancelled = await queue.cancel('mail', id!);
    expect(kindOfError(new TaskFailedError(cancelled))).toBe('other');
    expect(kindOfError('?')).toBe('other');
  });
});
