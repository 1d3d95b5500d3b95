/**
 * A process of its own that keeps the test database while the tests run: started by the first test file that needs it,
 * it ends when the process that runs all files has ended, however that happens.
 *
 *     keeper.ts DIRECTORY PID
 *
 * DIRECTORY gets ready.json with the hosts, or failed.txt with the reason; it is removed at the end.
 */
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { dockerFault, startContainer } from './docker.ts';
import { startCluster } from './node.ts';

const POLL_MS = 500;
const [directory, runner] = [process.argv[2]!, Number(process.argv[3])];

const isRunning = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

async function start(): Promise<{ readonly hosts: string; stop(): Promise<void> }> {
  if ((await dockerFault()) === null) return startContainer();
  const { nodes, options } = await startCluster(directory, 1);
  return { hosts: `${options[0]!.address}:${options[0]!.cqlPort}`, stop: () => nodes[0]!.stop() };
}

/** Readers never see half a file. */
async function tell(name: string, text: string): Promise<void> {
  await writeFile(join(directory, `${name}.new`), text);
  await rename(join(directory, `${name}.new`), join(directory, name));
}

let database: Awaited<ReturnType<typeof start>> | null = null;
try {
  database = await start();
  await tell('ready.json', JSON.stringify({ hosts: database.hosts }));
} catch (error) {
  await tell('failed.txt', (error as Error).message);
}
const timer = setInterval(async () => {
  if (isRunning(runner)) return;
  clearInterval(timer);
  await database?.stop();
  await rm(directory, { recursive: true, force: true });
  process.exit();
}, POLL_MS);
