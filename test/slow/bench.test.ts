/** What `npm run bench` prints: whether it can be read and adds up, not how fast it is. */
import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, expect, test } from 'vitest';
import { WINDOW_COLUMNS } from '../../bench/windows.ts';

const run = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');

/** @throws where it ends with another code than 0 */
const bench = (args: string) =>
  run(process.execPath, ['--import', 'tsx', 'bench/bench.ts', ...args.split(' ')], { cwd: root });

// As `npm run bench` does each time.
beforeAll(() => run('npm', ['run', '--silent', 'prebench'], { cwd: root }));

test('a load over HTTP, window by window: a server that is killed amid shows in the columns, and no task is lost', async () => {
  // More workers than publishers: one is free at any time, and asks for tasks.
  const { stdout, stderr } = await bench('--scenario soak --csv --disturb --seconds 4 --window 1 --workers 16');
  const [head, ...lines] = stdout.trimEnd().split('\n');
  expect(head).toBe(WINDOW_COLUMNS);
  const windows = lines.map((line) => {
    const [time, second, rate, p50, p99, errors, ...kinds] = line.split(',');
    expect(kinds).toHaveLength(7);
    const [lost, unavailable, busy, timeouts, other, pull] = kinds.map(Number);
    expect(Number(errors), line).toBe(lost! + unavailable! + busy! + timeouts! + other!);
    expect(new Date(time!).toISOString()).toBe(time);
    expect(Number(p99)).toBeGreaterThanOrEqual(Number(p50));
    return { second: Number(second), rate: Number(rate), errors: Number(errors), lost: lost!, pull: pull! };
  });
  expect(windows.map(({ second }) => second)).toEqual([0, 1, 2, 3]);
  // The server is killed two seconds later.
  expect(windows[0]).toMatchObject({ errors: 0, pull: 0 });
  expect(windows[0]!.rate).toBeGreaterThan(0);
  expect(Math.max(...windows.map(({ lost }) => lost))).toBeGreaterThan(0);
  expect(Math.max(...windows.map(({ pull }) => pull))).toBeGreaterThan(0);
  const [, published, answered] = /soak: (\d+) published, (\d+) answered, 0 not settled/.exec(stderr) ?? [];
  expect(Number(published)).toBeGreaterThan(0);
  expect(answered).toBe(published);
});

test('a load at a given rate keeps to it', async () => {
  const { stdout, stderr } = await bench('--scenario soak --json --rate 50 --seconds 2 --window 1');
  const { rows } = JSON.parse(stdout) as {
    rows: readonly { metric: string; value: number; reached: boolean | null }[];
  };
  const figureOf = (metric: string) => rows.find((row) => row.metric === metric)?.value;
  expect(figureOf('publish to result, p50')).toBeGreaterThan(0);
  expect(figureOf('published, and no result in the end')).toBe(0);
  expect(figureOf('not settled in the end')).toBe(0);
  // Two seconds more, which warm up. Publishers that do not wait in between publish a thousand and more.
  const published = Number(/soak: (\d+) published/.exec(stderr)?.[1]);
  expect(published).toBeGreaterThan(100);
  expect(published).toBeLessThan(400);
});

test('request and reply stand beside the same handler, called over plain HTTP', async () => {
  const { stdout } = await bench('--scenario request-reply --json --quick --rounds 1');
  const { rows } = JSON.parse(stdout) as {
    rows: readonly { metric: string; value: number; floor: { name: string; value: number }; ratio: number }[];
  };
  const figures = ['rate', 'p50', 'p99'];
  const series = ['over HTTP, 1', 'embedded, 1', 'over HTTP, 32', 'embedded, 32'];
  expect(rows.map(({ metric }) => metric)).toEqual(
    series.flatMap((name) => figures.map((figure) => `${name} at a time, ${figure}`)),
  );
  for (const { value, floor, ratio } of rows) {
    expect(floor.name).toBe('plain HTTP');
    expect(ratio).toBeCloseTo(value / floor.value, 9);
    expect(value).toBeGreaterThan(0);
  }
});
