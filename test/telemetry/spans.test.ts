/** Traces with the real SDK: from who publishes, over a real server, to who works on it, and back. */
import { context, ROOT_CONTEXT, trace } from '@opentelemetry/api';
import { describe, expect, onTestFinished, test } from 'vitest';
import { UnrecoverableError } from '../../src/client/index.ts';
import { onBoth, startWorld, untilState } from '../client/support/queue.ts';
import { startServer, tasksPath } from '../http/support/server.ts';
import { testQueue } from '../support/queue.ts';
import { brief, idOf, inSpan, parentOf, startSdk, traceOf } from './support.ts';

const TRACEPARENT = /^00-([\da-f]{32})-([\da-f]{16})-01$/;
const FOREIGN = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
const tasks = (count: number) => Array.from({ length: count }, (_, nth) => ({ payload: nth }));

onBoth('a client', (start) => {
  test('one trace: from the publisher to the handler, to what it publishes itself, and to the reply', async () => {
    const spans = startSdk();
    const { connect } = await start();
    const client = connect();
    const publisher = client.publisher();
    const worker = client.subscriber(['first', 'second'], { waitMs: 5_000 });
    const running = worker.run(async (task) => {
      if (task.topic === 'first') await publisher.publish('second', 2);
      return 'done';
    });
    const reply = await inSpan('caller', async () => (await publisher.publish('first', 1)).result());
    expect(reply).toBe('done');
    await spans.until('ack second');
    await client.drain();
    await running;
    const [caller, sent, processed, sentOn, processedOn, acked, result] = [
      'caller',
      'send first',
      'process first',
      'send second',
      'process second',
      'ack first',
      'result first',
    ].map(spans.one) as ReturnType<typeof spans.one>[];
    for (const span of [sent, processed, sentOn, processedOn, acked, result])
      expect(traceOf(span!)).toBe(traceOf(caller!));
    expect(parentOf(sent!)).toBe(idOf(caller!));
    expect(parentOf(processed!)).toBe(idOf(sent!));
    expect(parentOf(sentOn!)).toBe(idOf(processed!));
    expect(parentOf(processedOn!)).toBe(idOf(sentOn!));
    expect(parentOf(acked!)).toBe(idOf(processed!));
    expect(parentOf(result!)).toBe(idOf(caller!));
    const id = sent!.attributes['messaging.message.id'];
    expect(brief(sent!)).toEqual({
      kind: 'PRODUCER',
      status: 'UNSET',
      links: [],
      attributes: {
        'messaging.system': 'ebbmark',
        'messaging.operation.name': 'send',
        'messaging.operation.type': 'send',
        'messaging.destination.name': 'first',
        'messaging.message.id': expect.stringMatching(/./),
      },
    });
    expect(brief(processed!)).toEqual({
      kind: 'CONSUMER',
      status: 'UNSET',
      links: [idOf(sent!)],
      attributes: {
        'messaging.system': 'ebbmark',
        'messaging.operation.name': 'process',
        'messaging.operation.type': 'process',
        'messaging.destination.name': 'first',
        'messaging.message.id': id,
        'messaging.ebbmark.message.attempt': 1,
      },
    });
    expect(brief(acked!)).toMatchObject({
      kind: 'CLIENT',
      links: [idOf(sent!)],
      attributes: {
        'messaging.operation.name': 'ack',
        'messaging.operation.type': 'settle',
        'messaging.message.id': id,
      },
    });
  });

  test('a wait for the result by a caller who is in no trace is in that of the task', async () => {
    const spans = startSdk();
    const { connect } = await start();
    const client = connect();
    const running = client.subscriber('t').run(() => 1);
    const handle = await client.publisher().publish('t', 1);
    expect(await handle.result()).toBe(1);
    expect(parentOf(spans.one('result t'))).toBe(idOf(spans.one('send t')));
    await expect(handle.result({ signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow('enough');
    const [, second] = await spans.until('result t', 2);
    expect(brief(second!)).toMatchObject({ status: 'ERROR', attributes: { 'error.type': 'Error' } });
    await client.drain();
    await running;
  });

  test('what fails says so: a handler, a publish, a settlement', async () => {
    const spans = startSdk();
    const { connect, queue } = await start();
    const client = connect();
    const { id } = await client.publisher().publish('t', 1);
    const running = client.subscriber('t').run(() => {
      throw new UnrecoverableError('no such host');
    });
    await untilState(queue, 't', id, 'dead');
    await spans.until('nack t');
    expect(brief(spans.one('process t'))).toMatchObject({
      status: 'ERROR',
      attributes: { 'error.type': 'UnrecoverableError' },
    });
    expect(spans.one('process t').status.message).toBe('no such host');
    expect(brief(spans.one('nack t'))).toMatchObject({ status: 'UNSET' });
    await expect(client.publisher().publish('u', 1, { priority: 77 })).rejects.toMatchObject({ code: 'invalid-input' });
    expect(brief(spans.one('send u'))).toMatchObject({
      status: 'ERROR',
      attributes: { 'error.type': 'invalid-input' },
    });
    await client.drain();
    await running;
  });

  test('tasks published together share a call, and each keeps its own trace', async () => {
    const spans = startSdk();
    const { connect, queue } = await start();
    const publisher = connect().publisher();
    await Promise.all([1, 2, 3].map((nth) => inSpan(`caller ${nth}`, () => publisher.publish('t', nth))));
    const leased = await context.with(ROOT_CONTEXT, () => queue.lease({ topics: ['t'], max: 10 }));
    for (const nth of [1, 2, 3]) {
      const task = leased.find(({ payload }) => payload === nth)!;
      const [, traceId, spanId] = TRACEPARENT.exec(task.metadata.traceparent!)!;
      expect(traceId).toBe(traceOf(spans.one(`caller ${nth}`)));
      expect(spans.all().find((span) => idOf(span) === spanId)).toMatchObject({ name: 'send t' });
    }
    const received = spans.one('receive t');
    expect(brief(received)).toMatchObject({
      kind: 'CLIENT',
      attributes: { 'messaging.operation.type': 'receive', 'messaging.batch.message_count': 3 },
    });
    expect(received.links.map(({ context: of }) => of.traceId).sort()).toEqual(
      [1, 2, 3].map((nth) => traceOf(spans.one(`caller ${nth}`))).sort(),
    );
    expect(received.links.map(({ attributes }) => attributes?.['messaging.message.id']).sort()).toEqual(
      leased.map(({ id }) => id).sort(),
    );
  });

  test('a context that the producer gives is kept, and gone on with', async () => {
    const spans = startSdk();
    const { connect } = await start();
    const client = connect();
    const metadata = { traceparent: FOREIGN, tracestate: 'vendor=1', mine: 'as it is' };
    await client.publisher().publish('t', 1, { metadata });
    let seen: unknown;
    const running = client.subscriber('t').run((task) => {
      seen = task.metadata;
    });
    const [processed] = await spans.until('process t');
    expect(seen).toEqual(metadata);
    expect(traceOf(processed!)).toBe('0af7651916cd43dd8448eb211c80319c');
    expect(processed!.spanContext().traceState?.serialize()).toBe('vendor=1');
    expect(brief(spans.one('send t'))).toMatchObject({ kind: 'CLIENT', links: ['b7ad6b7169203331'] });
    await client.drain();
    await running;
  });

  test('a worker’s calls for tasks belong to no trace, whatever it was started in or does', async () => {
    const spans = startSdk();
    const { connect } = await start();
    const client = connect();
    const running = inSpan('start', async () => client.subscriber('t', { waitMs: 100 }).run(() => {}));
    for (let nth = 0; nth < 3; nth++) {
      await client.publisher().publish('t', nth);
      await spans.until('ack t', nth + 1);
    }
    await client.drain();
    await running;
    const start_ = traceOf(spans.one('start'));
    for (const span of spans.all()) if (span.name !== 'start') expect(traceOf(span), span.name).not.toBe(start_);
    for (const span of spans.all()) if (span.name === 'POST /v1/leases') expect(parentOf(span)).toBeUndefined();
  });

  test('an iteration tells of each task that it was given', async () => {
    const spans = startSdk();
    const { connect } = await start();
    const client = connect();
    await client.publisher().publish('t', 1);
    for await (const task of client.subscriber('t', { prefetch: 1 })) {
      await task.success();
      break;
    }
    expect(brief(spans.one('receive t'))).toMatchObject({ kind: 'CLIENT', links: [idOf(spans.one('send t'))] });
    expect(brief(spans.one('ack t'))).toMatchObject({ links: [idOf(spans.one('send t'))] });
  });

  test('without an SDK nothing is added to tasks, and none is told', async () => {
    const { connect, queue } = await start();
    const client = connect();
    await client.publisher().publish('t', 1);
    await client.publisher().publish('t', 2, { metadata: { mine: 'as it is' } });
    const leased = await queue.lease({ max: 10 });
    expect(leased.map(({ metadata }) => metadata)).toEqual([{}, { mine: 'as it is' }]);
    const spans = startSdk();
    expect(spans.all()).toEqual([]);
  });
});

describe('over HTTP', () => {
  test('calls of the client are in the server’s spans, which are those of its routes', async () => {
    const spans = startSdk();
    const { connect } = await startWorld('over HTTP');
    await connect().publisher().publish('t', 1);
    const [request] = await spans.until('POST /v1/topics/:topic/tasks');
    expect(brief(request!)).toEqual({
      kind: 'SERVER',
      status: 'UNSET',
      links: [],
      attributes: {
        'http.request.method': 'POST',
        'http.route': '/v1/topics/:topic/tasks',
        'http.response.status_code': 201,
      },
    });
    const [byServer, byClient] = spans.all().filter(({ name }) => name === 'send t');
    expect(parentOf(request!)).toBe(idOf(byClient!));
    expect(parentOf(byServer!)).toBe(idOf(request!));
    expect(brief(byServer!)).toMatchObject({ kind: 'INTERNAL', links: [idOf(byClient!)] });
  });

  test('the header of a request goes into its tasks, but into none that have a context', async () => {
    const server = await startServer();
    onTestFinished(() => server.close());
    const own = { traceparent: FOREIGN.replace('b7', 'c8') };
    const body = {
      tasks: [
        { payload: 1, metadata: { mine: 'x' } },
        { payload: 2, metadata: own },
      ],
    };
    await server.call('POST', tasksPath('t'), { body, headers: { traceparent: FOREIGN, tracestate: 'a=1,b=2' } });
    const leased = await server.lease('t', { max: 10 });
    expect(leased.map(({ metadata }) => metadata)).toEqual([
      { mine: 'x', traceparent: FOREIGN, tracestate: 'a=1,b=2' },
      own,
    ]);
  });

  test.each([
    '',
    'x',
    FOREIGN.toUpperCase(),
    FOREIGN.replace('00-', 'ff-'),
    `${FOREIGN}-1`,
    FOREIGN.replace(/[\da-f]{32}/, '0'.repeat(32)),
  ])('a header that breaks the rules is ignored: %j', async (traceparent) => {
    const server = await startServer();
    onTestFinished(() => server.close());
    const answer = await server.call('POST', tasksPath('t'), {
      body: { tasks: [{ payload: 1 }] },
      headers: { traceparent },
    });
    expect(answer.status).toBe(201);
    expect((await server.lease('t'))[0].metadata).toEqual({});
  });

  test('a request that is refused ends its span; the server’s own fault is an error', async () => {
    const spans = startSdk();
    const server = await startServer({}, (app) => {
      app.post('/v1/broken', { schema: { hide: true }, config: { access: 'open' } }, () => {
        throw new Error('unforeseen');
      });
    });
    onTestFinished(() => server.close());
    await server.post(tasksPath('t'), { tasks: [{}] });
    await server.post('/v1/broken');
    const [refused] = await spans.until('POST /v1/topics/:topic/tasks');
    expect(brief(refused!)).toMatchObject({ status: 'UNSET', attributes: { 'http.response.status_code': 400 } });
    const [broken] = await spans.until('POST /v1/broken');
    expect(brief(broken!)).toMatchObject({ status: 'ERROR', attributes: { 'error.type': '500' } });
    await server.get('/healthz');
    expect(spans.all().some(({ name }) => name.includes('healthz'))).toBe(false);
  });
});

describe('a queue in process', () => {
  test('tells of a batch once; each task is created in its context', async () => {
    const spans = startSdk();
    const { queue } = await testQueue();
    await inSpan('caller', () => queue.enqueue('t', [...tasks(2), { payload: 3, metadata: { traceparent: FOREIGN } }]));
    const sent = spans.one('send t');
    expect(parentOf(sent)).toBe(idOf(spans.one('caller')));
    expect(brief(sent)).toMatchObject({
      kind: 'PRODUCER',
      links: ['b7ad6b7169203331'],
      attributes: { 'messaging.batch.message_count': 3 },
    });
    expect(sent.attributes).not.toHaveProperty('messaging.message.id');
    const leased = await queue.lease({ max: 10 });
    const traceparent = `00-${traceOf(sent)}-${idOf(sent)}-01`;
    expect(leased.map(({ metadata }) => metadata.traceparent)).toEqual([traceparent, traceparent, FOREIGN]);
    expect(brief(spans.one('receive t')).links).toEqual([idOf(sent), idOf(sent), 'b7ad6b7169203331']);
  });

  test('a wait in vain is not told; a settlement is, by what it does', async () => {
    const spans = startSdk();
    const { queue } = await testQueue();
    expect(await queue.lease()).toEqual([]);
    expect(spans.all()).toEqual([]);
    await queue.enqueue('a', tasks(2));
    await queue.enqueue('b', tasks(2));
    const leased = await queue.lease({ max: 4 });
    expect(brief(spans.one('receive')).attributes).toMatchObject({ 'messaging.batch.message_count': 4 });
    const of = (topic: string) => leased.filter((task) => task.topic === topic).map(({ leaseId }) => ({ leaseId }));
    await queue.settle({ extend: of('a').map((item) => ({ ...item, leaseMs: 5_000 })) });
    await queue.settle({ ack: of('a') });
    expect(brief(spans.one('ack a')).attributes).toMatchObject({ 'messaging.batch.message_count': 2 });
    await queue.settle({ ack: of('b').slice(0, 1), nack: of('b').slice(1) });
    expect(brief(spans.one('settle b'))).toMatchObject({ kind: 'CLIENT', status: 'UNSET' });
    await queue.settle({ release: of('a') });
    expect(brief(spans.one('release a'))).toMatchObject({
      status: 'ERROR',
      attributes: { 'error.type': 'lease-lost' },
    });
  });

  test('a redelivery goes on in the same trace', async () => {
    startSdk();
    const { queue } = await testQueue();
    await queue.enqueue('t', { payload: 1 });
    const [first] = await queue.lease();
    await queue.settle({ nack: [{ leaseId: first!.leaseId, delayMs: 0 }] });
    const [again] = await queue.lease();
    expect(again).toMatchObject({ attempt: 2, metadata: first!.metadata });
    expect(again!.metadata.traceparent).toMatch(TRACEPARENT);
  });

  test('a task whose metadata leave no room goes without a trace, and is not refused for it', async () => {
    startSdk();
    const { queue } = await testQueue();
    const metadata = { mine: 'x'.repeat(8_160) };
    await queue.enqueue('t', { payload: 1, metadata });
    expect((await queue.lease())[0]!.metadata).toEqual(metadata);
  });

  test('what is no task is refused as it is without an SDK', async () => {
    const spans = startSdk();
    const { queue } = await testQueue();
    const wrong = [null, { payload: 1, metadata: 7 }, { payload: 1, metadata: [] }] as never[];
    const results = await queue.enqueue('t', wrong);
    expect(results.map((result) => 'code' in result && result.code)).toEqual(wrong.map(() => 'invalid-input'));
    expect(brief(spans.one('send t'))).toMatchObject({
      status: 'ERROR',
      attributes: { 'error.type': 'invalid-input' },
    });
    await expect(queue.enqueue('u', null as never)).rejects.toMatchObject({ code: 'invalid-input' });
    await expect(queue.settle(null as never)).rejects.toMatchObject({ code: 'invalid-input' });
  });

  test('one that is not sampled is carried on as such', async () => {
    startSdk();
    const { queue } = await testQueue();
    const remote = { traceId: '1'.repeat(32), spanId: '2'.repeat(16), traceFlags: 0, isRemote: true };
    await context.with(trace.setSpanContext(ROOT_CONTEXT, remote), () => queue.enqueue('t', { payload: 1 }));
    expect((await queue.lease())[0]!.metadata.traceparent).toMatch(
      new RegExp(`^00-${'1'.repeat(32)}-[\\da-f]{16}-00$`),
    );
  });
});
