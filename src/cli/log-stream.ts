/** Takes bytes, and calls back once they are written, or with what kept them from it. */
export type Sink = (bytes: string, done: (error?: Error | null) => void) => void;

/** Bytes that wait at the most; what is being written comes on top, with CHUNK_BYTES. */
const WAITING_BYTES = 512 * 1024;
const CHUNK_BYTES = 64 * 1024;
/** How long nothing is written after a write failed: a full disk is not empty a moment later. */
const AGAIN_MS = 1_000;

/**
 * Writes lines without ever waiting for whoever takes them: what finds no room is dropped, and counted. One write at a time
 * is under way; once they go well again, `onResumed` is told how many lines were dropped until then.
 */
export class LogStream {
  readonly #sink: Sink;
  readonly #onResumed: (lines: number) => void;
  #lines: string[] = [];
  #bytes = 0;
  #isWriting = false;
  #dropped = 0;
  #untold = 0;
  readonly #whenIdle = new Set<() => void>();

  constructor(sink: Sink, onResumed: (lines: number) => void) {
    this.#sink = sink;
    this.#onResumed = onResumed;
  }

  /** Lines dropped since the start. */
  get dropped(): number {
    return this.#dropped;
  }

  write(line: string): void {
    // By UTF-16 units, which bound the bytes within a factor of three and cost nothing to count.
    if (this.#bytes + line.length > WAITING_BYTES) {
      this.#drop(1);
      return;
    }
    this.#lines.push(line);
    this.#bytes += line.length;
    this.#next();
  }

  /** Resolves once all is written, or the time is over. */
  async flush(ms: number): Promise<void> {
    if (!this.#isWriting) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#whenIdle.delete(done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#whenIdle.add(done);
    });
  }

  #drop(lines: number): void {
    this.#dropped += lines;
    this.#untold += lines;
  }

  #next(): void {
    if (this.#isWriting) return;
    if (this.#lines.length === 0) {
      for (const done of [...this.#whenIdle]) done();
      return;
    }
    let count = 0;
    let bytes = 0;
    while (count < this.#lines.length && (count === 0 || bytes + this.#lines[count]!.length <= CHUNK_BYTES)) {
      bytes += this.#lines[count++]!.length;
    }
    const chunk = this.#lines.splice(0, count);
    this.#bytes -= bytes;
    this.#isWriting = true;
    this.#sink(chunk.join(''), (error) => this.#written(count, error ?? null));
  }

  #written(lines: number, error: Error | null): void {
    if (error !== null) {
      this.#drop(lines);
      setTimeout(() => this.#goOn(), AGAIN_MS).unref();
      return;
    }
    // Not before there is room for it, and for some lines behind it.
    if (this.#untold > 0 && this.#bytes <= WAITING_BYTES / 2) {
      const untold = this.#untold;
      this.#untold = 0;
      // While it is still taken to be writing: the line joins those that wait.
      this.#onResumed(untold);
    }
    this.#goOn();
  }

  #goOn(): void {
    this.#isWriting = false;
    this.#next();
  }
}
