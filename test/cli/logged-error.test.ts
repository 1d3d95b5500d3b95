import { readFileSync } from 'node:fs';
import cassandra from 'cassandra-driver';
import { expect, it } from 'vitest';
import { loggedError } from '../../src/cli/logged-error.ts';
import { invalid, QueueError } from '../../src/core/errors.ts';
import { PeerUnreachableError } from '../../src/queue/peers.ts';
import { StoreUnavailableError } from '../../src/store/store.ts';

const thrownBy = (call: () => unknown): unknown => {
  try {
    return call();
  } catch (error) {
    return error;
  }
};

it.each([
  ['a syntax error of JSON', thrownBy(() => JSON.parse('canary')), 'SyntaxError'],
  ['an address that is none', thrownBy(() => new URL('//me:canary@')), 'TypeError'],
  ['an input error', invalid('/payload', 'canary', 'right', 'wrong'), 'QueueError'],
  ['a text of many lines', new Error('canary\n    at canary (canary:1:1)\n  at canary'), 'Error'],
  ['a text that was changed', Object.assign(new Error('a\n    at canary'), { message: 'b' }), 'Error'],
  ['a cause', new StoreUnavailableError('db: disk full', { cause: new Error('canary') }), 'StoreUnavailableError'],
  ['properties', Object.assign(new Error('x'), { payload: 'canary', code: 'canary is no code' }), 'Error'],
  ['several in one', new AggregateError([new Error('canary')], 'canary'), 'AggregateError'],
  ['what is no error', 'canary', 'string'],
  ['what is nothing', undefined, 'undefined'],
])('%s tells its kind, and nothing that was put in', (_name, error, type) => {
  const logged = loggedError(error);
  expect(logged.type).toBe(type);
  expect(JSON.stringify(logged)).not.toContain('canary');
});

it('of a known kind is shown with its text, its code and where it happened', () => {
  const texts: readonly (readonly [unknown, object])[] = [
    [new StoreUnavailableError('db: disk full'), { message: 'db: disk full' }],
    [new PeerUnreachableError('http://x gave no answer'), { message: 'http://x gave no answer' }],
    [
      new QueueError('lease-lost', 'a detail'),
      { code: 'lease-lost', message: expect.stringMatching(/^The lease is no/) },
    ],
    [thrownBy(() => readFileSync('/nowhere')), { code: 'ENOENT', message: expect.stringContaining("open '/nowhere'") }],
    [new cassandra.errors.ResponseError(8704, 'too large'), { code: 8704, message: 'too large' }],
  ];
  for (const [error, expected] of texts) {
    expect(loggedError(error)).toMatchObject({
      ...expected,
      stack: expect.stringMatching(/^ +at [\s\S]*logged-error/),
    });
  }
  expect(loggedError(new StoreUnavailableError('a', { cause: new PeerUnreachableError('b') })).cause).toMatchObject({
    message: 'b',
  });
});

it('ends with causes that go round', () => {
  const error = new Error('canary');
  error.cause = error;
  expect(JSON.stringify(loggedError(error))).not.toContain('canary');
});
