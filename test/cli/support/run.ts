/** Runs the real command line as a process of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

export interface Run {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly err: string;
}

export interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string | Uint8Array;
  /** A module that is loaded before the program. */
  readonly preload?: string;
  /** Where the program is; here when absent. */
  readonly root?: string;
}

export interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<Run>;
  out(): string;
  /** Resolves with the match once standard output fits; rejects when the process ends before. */
  until(pattern: RegExp): Promise<RegExpExecArray>;
}

/** Starts `ebbmark` with nothing in its environment but what is given (and the path). */
export function start(args: readonly string[], { env = {}, input, preload, root = ROOT }: RunOptions = {}): Running {
  const preloaded = preload === undefined ? [] : ['--import', 'tsx', '--import', preload];
  // Another version is not built.
  const program = root === ROOT ? ['dist/cli.js'] : ['--import', 'tsx', 'src/cli.ts'];
  const child = spawn(process.execPath, [...preloaded, ...program, ...args], {
    cwd: root,
    env: { PATH: process.env.PATH ?? '', ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let out = '';
  let err = '';
  const looks = new Set<() => void>();
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    out += chunk;
    for (const look of looks) look();
  });
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    err += chunk;
  });
  // A command that fails early does not read its input.
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  const ended = new Promise<Run>((resolve) =>
    child.once('close', (code, signal) => resolve({ code, signal, out, err })),
  );
  return {
    child,
    ended,
    out: () => out,
    until: (pattern) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const match = pattern.exec(out);
          if (match) resolve(match);
        };
        looks.add(look);
        void ended.then((run) => reject(new Error(`ended before ${pattern}: ${JSON.stringify(run)}`)));
        look();
      }),
  };
}

/** Runs `ebbmark` to its end. */
export const run = (args: readonly string[], options?: RunOptions): Promise<Run> => start(args, options).ended;
