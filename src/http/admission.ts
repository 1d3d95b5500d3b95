/**
 * Lets requests in as far as the budgets go, before their bodies are read, and gives back what each has taken once it is
 * over: its work is done, and its answer has been taken or nobody is left to take it. A request whose caller has gone
 * is not over while it still runs: else one who comes again and again would have any number of them running.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { QueueError } from '../core/errors.ts';
import type { App, Budget, Surroundings } from './app.ts';
import type { Budgets, Share } from './budgets.ts';
import { dropRest } from './last-words.ts';
import { problemHeaders, problemOf } from './problem.ts';

/** More are never sent by who has something to say; Node leaves out those above 2,000 without a word. */
const MAX_HEADERS = 100;
/** Requests of one connection that are not answered yet. Node reads on and on while the first one waits. */
const MAX_PIPELINED = 64;

/** What a request has taken of the budgets. */
export class Admission {
  readonly #budgets: Budgets;
  readonly #share: Share;
  readonly #response: ServerResponse;
  readonly #maxBodyBytes: number;
  #expectsContinue: boolean;
  #bodyBytes = 0;
  #answerBytes = 0;
  #enqueued = 0;
  #awaits = false;
  #isDone = false;
  #isGone = false;

  constructor(budgets: Budgets, share: Share, response: ServerResponse, maxBodyBytes: number) {
    this.#maxBodyBytes = maxBodyBytes;
    this.#budgets = budgets;
    this.#share = share;
    this.#response = response;
    this.#expectsContinue = response.req.headers.expect?.toLowerCase() === '100-continue';
  }

  /** Its body is about to be read: who waits for a word before sending it gets that. */
  readsBody(): void {
    if (!this.#expectsContinue) return;
    this.#expectsContinue = false;
    this.#response.writeContinue();
  }

  /** Its body has so many bytes, or will have, or has already. @throws QueueError `body-too-large`, `busy` */
  hasBody(bytes: number): void {
    if (bytes <= this.#bodyBytes) return;
    if (bytes > this.#maxBodyBytes) {
      throw this.#budgets.tooLarge(`The body is larger than ${this.#maxBodyBytes} bytes (uncompressed)`);
    }
    this.#budgets.takeBytes(this.#share, bytes - this.#bodyBytes, this.#bodyBytes);
    this.#bodyBytes = bytes;
  }

  /** It enqueues so many tasks. @throws QueueError `busy`, `body-too-large` */
  enqueues(tasks: number): void {
    if (tasks <= this.#enqueued) return;
    this.#budgets.enqueue(tasks - this.#enqueued, this.#enqueued);
    this.#enqueued = tasks;
  }

  /** It waits for a result. @throws QueueError `busy` */
  awaitsResult(): void {
    this.#budgets.awaitResult();
    this.#awaits = true;
  }

  /**
   * Its work is done, and it is answered with so many bytes.
   * @param mayRefuse whether they may be left unsaid where there is no room for them
   * @returns whether they are said
   */
  answers(bytes: number, mayRefuse: boolean): boolean {
    this.#isDone = true;
    const own = this.#share === this.#budgets.rest ? this.#bodyBytes : 0;
    if (this.#isGone) this.#giveBack();
    else if (!mayRefuse) this.#budgets.rest.add(bytes);
    else if (!this.#budgets.takeAnswer(bytes, own)) return false;
    if (!this.#isGone) this.#answerBytes += bytes;
    return true;
  }

  /** Its answer has been taken, or nobody is left to take it. */
  gone(): void {
    this.#isGone = true;
    if (this.#isDone) this.#giveBack();
  }

  #giveBack(): void {
    this.#share.giveBack(this.#bodyBytes);
    this.#budgets.rest.giveBack(this.#answerBytes);
    this.#budgets.enqueueEnded(this.#enqueued);
    if (this.#awaits) this.#budgets.awaitEnded();
    this.#bodyBytes = 0;
    this.#answerBytes = 0;
    this.#enqueued = 0;
    this.#awaits = false;
  }
}

/**
 * Adds the hooks that admit requests; after those that say who may come in at all.
 * @param maxBodyBytes of one request
 */
export function admitRequests(app: App, { budgets, waits, answers }: Surroundings, maxBodyBytes: number): void {
  const unanswered = new WeakMap<Socket, number>();

  app.decorateRequest('admission');
  app.addHook('onRequest', (request, reply, done) => {
    const { raw } = request;
    const { budget } = request.routeOptions.config;
    const isInput = budget === 'enqueue' || budget === 'publish';
    const admission = new Admission(budgets, isInput ? budgets.input : budgets.rest, reply.raw, maxBodyBytes);
    request.admission = admission;
    const pending = (unanswered.get(raw.socket) ?? 0) + 1;
    unanswered.set(raw.socket, pending);
    waits.whenOver(reply.raw, () => {
      unanswered.set(raw.socket, unanswered.get(raw.socket)! - 1);
      answers.ended(reply.raw);
      admission.gone();
    });
    if (pending > MAX_PIPELINED) {
      budgets.countRefusal('pipelining');
      // An answer would have to wait behind the others, and take up room meanwhile.
      raw.socket.destroy();
      done(new QueueError('busy'));
      return;
    }
    try {
      admit(raw, admission, budgets, budget);
      done();
    } catch (error) {
      done(error as Error);
    }
  });

  app.addHook('onSend', (request, reply, payload: unknown, done) => {
    const { raw, admission } = request;
    if (!raw.complete) dropRest(raw, reply.raw);
    const bytes = typeof payload === 'string' || payload instanceof Uint8Array ? Buffer.byteLength(payload) : 0;
    answers.begins(reply.raw, bytes);
    // There is none where it failed before it came to the hooks.
    if (admission?.answers(bytes, isRefusable(request, reply)) ?? true) {
      done();
      return;
    }
    waits.lose(reply.raw);
    const problem = problemOf(new QueueError('busy', 'Answers that are not taken yet leave no memory for this one'));
    const refusal = Buffer.from(JSON.stringify(problem));
    admission.answers(refusal.length, false);
    reply.code(problem.status).headers(problemHeaders(problem.code));
    done(null, refusal);
  });
}

/** Whether nothing is lost where an answer is left unsaid: it can be asked for again, or what is in it is given back. */
const isRefusable = ({ method, routeOptions }: FastifyRequest, { statusCode }: FastifyReply): boolean => {
  const { budget } = routeOptions.config;
  return statusCode < 300 && (budget === 'lease' || (method === 'GET' && budget !== 'service'));
};

/** @throws QueueError what keeps a request out */
function admit(
  { rawHeaders, headers }: IncomingMessage,
  admission: Admission,
  budgets: Budgets,
  budget: Budget | undefined,
): void {
  if (rawHeaders.length > 2 * MAX_HEADERS) {
    budgets.countRefusal('headers');
    throw new QueueError('headers-too-large', `A request has ${MAX_HEADERS} headers at the most`);
  }
  if (budget === 'lease') budgets.refuseWhenFull();
  // How many there are is known once the body is read.
  if (budget === 'enqueue') admission.enqueues(1);
  admission.hasBody(Number(headers['content-length'] ?? 0));
}
