import type { ServerResponse } from 'node:http';
import type { Budgets, Share } from './budgets.ts';

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
