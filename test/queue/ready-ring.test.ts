/** Whom the ring wakes, and what it no longer listens to. */
import { expect, test } from 'vitest';
import { DEFAULT_SETTINGS } from '../../src/core/settings.ts';
import { Log, logHome } from '../../src/queue/log.ts';
import { Tenure } from '../../src/queue/tenure.ts';
import { Topic } from '../../src/queue/topics.ts';
import { Uptime } from '../../src/queue/uptime.ts';
import { checkLease } from '../../src/queue/validate.ts';
import { ReadyRing } from '../../src/scheduler/ready-ring.ts';
import { MemoryStore } from '../../src/store/memory/store.ts';
import { Tables } from '../../src/store/memory/tables.ts';
import { EMBEDDED_META } from '../../src/store/store.ts';
import { entry } from '../conformance/harness.ts';
import { manualEnvironment } from '../support/manual-environment.ts';

const env = manualEnvironment();

function tenure(): Tenure {
  const begun = new Tenure(0, 1, env.now());
  begun.isLoaded = true;
  return begun;
}

async function topicWith(name: string, tasks: number, of: Tenure): Promise<Topic> {
  const store = new MemoryStore(new Tables(EMBEDDED_META, env.now));
  const peers = { askEnd: async () => null, appended: () => {}, found: () => {} };
  const log = new Log({ topic: name, tier: 5 }, of, logHome(store, env, peers, new Uptime(env.monotonic)));
  await log.append(Array.from({ length: tasks }, (_, nth) => entry(nth)));
  const topic = new Topic(name, of, DEFAULT_SETTINGS, null, env);
  topic.logs.add(log);
  return topic;
}

const unfold = (): never => {
  throw new Error('nothing is folded here');
};

test('as many calls are woken for what one has left behind as there are tasks', async () => {
  const ring = new ReadyRing(env, unfold);
  ring.offer(await topicWith('a', 2, tenure()));
  const woken: number[] = [];
  for (let nth = 0; nth < 50; nth++) {
    ring.wait({ request: checkLease({ topics: [nth % 2 === 0 ? 'a' : 'a*'] }), wake: (ready) => woken.push(ready) });
  }
  ring.passOn();
  expect(woken).toEqual([2, 1]);
  expect(ring.waiting).toBe(48);
});

test('what is told of a topic of a former time leaves that of the present one where it is', async () => {
  const ring = new ReadyRing(env, unfold);
  const former = tenure();
  const before = await topicWith('a', 1, former);
  ring.offer(before);
  former.ended = true;
  ring.drop(before);
  ring.offer(await topicWith('a', 1, tenure()));
  ring.claimed(before);
  ring.drop(before);
  for (const topics of [['a'], ['a*'], ['*']]) expect(ring.readyFor(checkLease({ topics }))).toBe(1);
});
