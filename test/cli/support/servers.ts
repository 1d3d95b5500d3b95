import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { type Running, start } from './run.ts';

export interface Served extends Running {
  readonly url: string;
}

/**
 * Servers as processes, of a test file: each is killed behind the test that started it, and the directory of their stores
 * goes behind the last one.
 * @param name tells the directory from others
 */
export function servers(name: string) {
  const started: Running[] = [];
  let directory = '';
  let stores = 0;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), `ebbmark-${name}-`));
  });
  afterEach(async () => {
    for (const { child, ended } of started.splice(0)) {
      child.kill('SIGKILL');
      await ended;
    }
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  return {
    /** Where something is to be beside the stores. */
    beside: (...names: readonly string[]): string => join(directory, ...names),
    newStore: (): string => `sqlite:${join(directory, `${stores++}.db`)}`,
    /** Resolves once it listens. */
    async serve(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Served> {
      const server = start(['serve', '--listen', '127.0.0.1:0', ...args], { env });
      started.push(server);
      const [, url] = await server.until(/"url":"([^"]+)"/);
      return { ...server, url: url! };
    },
  };
}
