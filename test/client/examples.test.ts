/** The client's examples, as processes, on a queue of their own and on a server. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { startServer } from '../http/support/server.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

interface Example {
  readonly name: string;
  /** What it says. */
  readonly says: RegExp;
  /** It is ended by SIGTERM once it has said this. */
  readonly until?: RegExp;
}

const EXAMPLES: readonly Example[] = [
  {
    name: 'publisher-and-worker',
    says: /^(?=.*"busy", attempt 2\n)(?=.*mail\/example\.org: sent\n).*mail\/example\.net: Task .* is dead: no such user\n$/s,
  },
  { name: 'request-and-reply', says: /^nobody there yet\n1 \+ 2 \+ 3 = 6\nand 9, 13, 17\n$/ },
  {
    name: 'typed-topics',
    says: /^en to ada@example\.org\nexample\.org\/about\nThe payload does not fit mail\.welcome: \/payload\/to: .*\n$/,
  },
  {
    name: 'graceful-stop',
    says: /^working; .*\nstep 1 begins\nstep 1 done\nstep 2 begins\nstopping\nstep 2 done\nstopped, with nothing in hand\n$/,
    until: /step 2 begins/,
  },
];

async function run({ name, until }: Example, args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, ['--import', 'tsx', `examples/${name}.ts`, ...args], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let out = '';
  let errors = '';
  let hasStopped = false;
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    out += chunk;
    if (until === undefined || hasStopped || !until.test(out)) return;
    hasStopped = true;
    child.kill('SIGTERM');
  });
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    errors += chunk;
  });
  const [code, signal] = await once(child, 'close');
  expect({ code, signal, errors }).toEqual({ code: 0, signal: null, errors: '' });
  return out;
}

it.each(EXAMPLES)('$name, in one process', async (example) => {
  expect(await run(example, [])).toMatch(example.says);
});

it.each(EXAMPLES)('$name, on a server', async (example) => {
  const server = await startServer();
  onTestFinished(() => server.close());
  expect(await run(example, [server.url])).toMatch(example.says);
  expect(server.queue.status()).toMatchObject({
    leased: 0,
    redelivered: example.name === 'publisher-and-worker' ? 1 : 0,
  });
});
