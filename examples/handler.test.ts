/**
 * Tests of a handler, with a queue in memory whose clock the test moves: no server, no sleep. With node:test here; the
 * same in vitest or jest. Run it by: npx tsx --test examples/handler.test.ts
 */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import type { LeasedTask, Queue } from 'ebbmark';
import { TestQueue } from 'ebbmark/testing';

// ── what is tested: sends a mail to who has signed up, and a reminder a day later ─────────────────────────────────

type Send = (to: string, subject: string) => Promise<void>;

function signUpHandler(queue: Queue, send: Send) {
  return async ({ payload }: LeasedTask): Promise<{ sent: string }> => {
    const { to, subject } = payload as { to: string; subject: string };
    await send(to, subject);
    if (subject === 'Welcome') {
      const reminder = { payload: { to, subject: 'Are you there?' }, messageId: `reminder-${to}`, delayMs: 86_400_000 };
      await queue.enqueue('mail', reminder);
    }
    return { sent: subject };
  };
}

// ── the tests ─────────────────────────────────────────────────────────────────────────────────────────────────────

/** Settled tasks can be looked at for an hour by default: too short here, where the clock jumps a day ahead. */
const SETTINGS = { maxAttempts: 3, retentionMs: 7 * 86_400_000 };

let queue: TestQueue;
let sent: string[];

beforeEach(async () => {
  queue = await TestQueue.start({ now: new Date('2024-02-28T12:00:00Z'), settings: { mail: SETTINGS } });
  sent = [];
});
afterEach(() => queue.stop());

const welcome = { payload: { to: 'ada@example.org', subject: 'Welcome' }, messageId: 'welcome-ada' };
const send: Send = async (to, subject) => void sent.push(`${new Date(queue.now).toISOString()} ${to}: ${subject}`);

test('a reminder follows a day later', async () => {
  await queue.enqueue('mail', welcome);
  // Works off all there is; the clock jumps to the reminder.
  const { succeeded } = await queue.drain(signUpHandler(queue, send));
  assert.equal(succeeded, 2);
  assert.deepEqual(sent, [
    '2024-02-28T12:00:00.000Z ada@example.org: Welcome',
    '2024-02-29T12:00:00.000Z ada@example.org: Are you there?',
  ]);
});

test('a mail server that is down for a moment costs an attempt', async () => {
  await queue.enqueue('mail', welcome);
  let calls = 0;
  const failing: Send = async (to, subject) => {
    if (++calls === 1) throw new Error('421 try again later');
    await send(to, subject);
  };
  const { failed } = await queue.drain(signUpHandler(queue, failing));
  assert.equal(failed, 1);
  const task = await queue.taskByMessageId('mail', 'reminder-ada@example.org');
  assert.equal(task.state, 'done');
  assert.equal(sent.length, 2);
});

test('an address that does not exist ends in the dead letters', async () => {
  await queue.enqueue('mail', welcome);
  const { deadLettered, errors } = await queue.drain(
    signUpHandler(queue, async () => {
      throw new Error('550 no such user');
    }),
  );
  assert.equal(deadLettered, 1);
  assert.equal(errors.length, 3);
  const task = await queue.waitFor({ topic: 'mail', messageId: 'welcome-ada', state: 'dead' });
  assert.equal(task.reason, '550 no such user');
});

test('a worker that dies loses its task after the lease time', async () => {
  await queue.enqueue('mail', welcome);
  const [lost] = await queue.lease({ leaseMs: 60_000 });
  assert.ok(lost);
  await queue.advance(62_000);
  await queue.drain(signUpHandler(queue, send));
  const task = await queue.taskByMessageId('mail', 'welcome-ada');
  assert.deepEqual(
    task.attempts.map(({ outcome }) => outcome),
    ['lapsed', 'done'],
  );
});
