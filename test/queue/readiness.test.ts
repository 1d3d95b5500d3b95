/** A server is not ready while what it does over and over does not go well: each part held up by itself, by a stuck store. */
import { describe, expect, test } from 'vitest';
import { type Server, sharedStore } from '../support/shared-store.ts';

type Verb = Parameters<Server['holdAnswers']>[0];

/** What a server says once answers of one kind have been held back for so long, and once they came. */
async function heldBack(verb: Verb, ms: number, before: (server: Server) => Promise<unknown> = async () => {}) {
  const { env, server } = await sharedStore(1);
  const one = await server();
  expect(await one.queue.readiness()).toEqual({ ready: true, reasons: [] });
  const answer = one.holdAnswers(verb);
  await before(one);
  const steps: (readonly string[])[] = [];
  for (let passed = 0; passed < ms; passed += 1_000) {
    await env.advance(1_000);
    steps.push((await one.queue.readiness()).reasons);
  }
  answer();
  await env.advance(15_000);
  return { steps, after: await one.queue.readiness() };
}

const READY = { ready: true, reasons: [] };

describe('not ready', () => {
  test('when the last renewal of its shards is too old', async () => {
    const { steps, after } = await heldBack('writeNode', 12_000);
    expect(steps[5]).toEqual([]);
    expect(steps[9]).toContainEqual(expect.stringMatching(/^this server's beat was last raised \d+ s ago$/));
    expect(after).toEqual(READY);
  });

  test('when the last poll of its neighbours is too old', async () => {
    const { steps, after } = await heldBack('readShards', 15_000);
    expect(steps[8]).toEqual([]);
    expect(steps[14]).toContainEqual(
      expect.stringMatching(/^which servers there are, and what they hold, was last read \d+ s ago$/),
    );
    expect(after).toEqual(READY);
  });

  test('when it no longer hears what others put there', async () => {
    const { steps, after } = await heldBack('readActivity', 15_000);
    expect(steps[8]).toEqual([]);
    expect(steps[14]).toContainEqual(
      expect.stringMatching(/^what other servers put here was last looked for \d+ s ago$/),
    );
    expect(after).toEqual(READY);
  });

  test('when the last poll of settings is too old', async () => {
    const { env, server } = await sharedStore(1);
    const servers = [await server(), await server()];
    const [holder, other] = servers[0]!.queue.status().shards.held === 1 ? servers : servers.toReversed();
    await other!.queue.enqueue('t', { payload: 1 });
    const answer = other!.holdAnswers('readTopic');
    const keepUsing = async (ms: number): Promise<void> => {
      for (let passed = 0; passed < ms; passed += 1_000) {
        void other!.queue.enqueue('t', { payload: 1 });
        await env.advance(1_000);
      }
    };
    await keepUsing(15_000);
    expect(await other!.queue.readiness()).toEqual(READY);
    await keepUsing(12_000);
    const { reasons } = await other!.queue.readiness();
    expect(reasons).toEqual([expect.stringMatching(/^settings of topics of other servers were last read \d+ s ago$/)]);
    expect(await holder!.queue.readiness()).toEqual(READY);
    answer();
    await env.advance(10_000);
    expect(await other!.queue.readiness()).toEqual(READY);
  });

  test('when the last successful pass of the scanner is too old, though one is under way', async () => {
    const { steps, after } = await heldBack('advanceCheckpoint', 25_000, async ({ queue }) => {
      await queue.enqueue('t', { payload: 1 });
      const [task] = await queue.lease();
      await queue.settle({ ack: [{ leaseId: task!.leaseId }] });
    });
    expect(steps[15]).toEqual([]);
    expect(steps[24]).toEqual([expect.stringMatching(/^the completion scanner is 2\d s late$/)]);
    expect(after).toEqual(READY);
  });

  test('when the store does not say that it is there, which is not waited for', async () => {
    const { env, server } = await sharedStore(1);
    const { queue, holdAnswers } = await server();
    const answer = holdAnswers('ping');
    const asked = queue.readiness();
    await env.advance(2_000);
    expect(await asked).toEqual({ ready: false, reasons: ['the store does not answer: not within 2 s'] });
    answer();
    expect(await queue.readiness()).toEqual(READY);
  });

  test('not where nothing is due: a quiet server is ready for ever', async () => {
    const { env, server } = await sharedStore();
    const { queue } = await server();
    await env.advance(3_600_000);
    expect(await queue.readiness()).toEqual(READY);
  });
});
