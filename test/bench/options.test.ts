import { expect, test } from 'vitest';
import { readOptions } from '../../bench/options.ts';

const soakOf = (...args: readonly string[]) => readOptions(['--scenario', 'soak', ...args])?.soak;

test('a soak is a minute in windows of five seconds, unless told otherwise', () => {
  const otherwise = { rate: null, publishers: 8, workers: 8, disturb: false };
  expect(soakOf()).toEqual({ seconds: 60, windowSeconds: 5, ...otherwise });
  expect(soakOf('--quick')).toEqual({ seconds: 10, windowSeconds: 1, ...otherwise });
  expect(soakOf('--seconds', '90', '--window', '30', '--rate', '20', '--workers', '3', '--disturb')).toEqual({
    seconds: 90,
    windowSeconds: 30,
    rate: 20,
    publishers: 8,
    workers: 3,
    disturb: true,
  });
  expect(soakOf('--publishers', '2')?.publishers).toBe(2);
});

test.each([
  [['--scenario', 'soak', '--seconds', '0'], '--seconds: "0" is not a whole number from 1 to 2592000'],
  [['--scenario', 'soak', '--window', '7'], '--window: "7" does not divide the 60 seconds that are measured'],
  [['--scenario', 'soak', '--rate', '1.5'], '--rate: "1.5" is not a whole number from 1 to 100000'],
  [['--scenario', 'soak', '--rate', '9', '--publishers', '4'], '--rate: "9" goes without --publishers'],
  [['--scenario', 'soak', '--workers', '2000'], '--workers: "2000" is not a whole number from 1 to 1000'],
  [['--scenario', 'soak', '--scenario', 'http', '--csv'], '--csv: "soak, http" can\'t share one table'],
  [['--scenario', 'http', '--disturb'], '--disturb: is for soak, not for http'],
  [['--rate', '9'], '--rate: is for soak, not for in-process, http, million'],
])('%j is refused, with an example of what would be right', (args, reason) => {
  expect(() => readOptions(args)).toThrow(reason);
  expect(() => readOptions(args)).toThrow('; for example: ');
});
