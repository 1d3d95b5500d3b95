/** Cassandra nodes as child processes, on loopback addresses: one for most tests, three for those that take some down. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';
import cassandra from 'cassandra-driver';
import { cassandraJars } from './jars.ts';

const { RoundRobinPolicy } = cassandra.policies.loadBalancing;

export interface NodeOptions {
  /** Where its configuration and data go; kept after it has ended, so that it can be started again on the same. */
  readonly directory: string;
  /** 127.0.0.1 to 127.0.0.n; all nodes of a cluster share both ports. */
  readonly address: string;
  readonly cqlPort: number;
  readonly storagePort: number;
  /** The address of the node that the others join. */
  readonly seed: string;
  readonly heapMb?: number;
  /** Replaces or adds lines of cassandra.yaml. */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface CassandraNode {
  readonly address: string;
  readonly pid: number;
  /** Resolves when the process has ended. */
  readonly ended: Promise<void>;
  kill(signal: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT' | 'SIGTERM'): void;
  /** Ends it in order, and waits for that. */
  stop(): Promise<void>;
}

const HEAP_MB = 512;
/** How long a node may take until it answers; the first on two busy cores takes 10 to 20 s. */
const START_MS = 180_000;
const STOP_MS = 20_000;
const POLL_MS = 250;
const READY = 'Starting listening for CQL clients';
/** Lines of its log that are told where it doesn't start. */
const TOLD_LINES = 15;

/** Starts a node and waits until it takes CQL. */
export async function startNode(options: NodeOptions): Promise<CassandraNode> {
  const jars = await cassandraJars();
  const conf = join(options.directory, 'conf');
  await mkdir(conf, { recursive: true });
  await writeFile(join(conf, 'cassandra.yaml'), yaml(options));
  await writeFile(join(conf, 'logback.xml'), LOGBACK);
  const child = spawn('java', javaArguments(options, conf, jars), { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = once(child, 'exit').then(() => {});
  await ready(child, options.address);
  // The line comes just before the port is bound.
  while (!(await accepts(options))) {
    if (child.exitCode !== null)
      throw new Error(`The Cassandra node at ${options.address} ended as it began to listen`);
    await wait(POLL_MS);
  }
  const stop = async (): Promise<void> => {
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    // One that was paused hears nothing else.
    child.kill('SIGCONT');
    child.kill('SIGTERM');
    await ended;
    clearTimeout(timer);
  };
  return { address: options.address, pid: child.pid!, ended, kill: (signal) => void child.kill(signal), stop };
}

/** Starts nodes on 127.0.0.1, 127.0.0.2, … one after the other; each waits until the one before is there. */
export async function startCluster(
  directory: string,
  count: number,
  options: Pick<NodeOptions, 'heapMb' | 'settings'> = {},
): Promise<{ readonly nodes: readonly CassandraNode[]; readonly options: readonly NodeOptions[] }> {
  const [cqlPort, storagePort] = [await freePort(), await freePort()];
  const all = Array.from({ length: count }, (_, i): NodeOptions => {
    const address = `127.0.0.${i + 1}`;
    return { ...options, directory: join(directory, address), address, cqlPort, storagePort, seed: '127.0.0.1' };
  });
  const nodes: CassandraNode[] = [];
  try {
    for (const one of all) nodes.push(await startNode(one));
    for (const one of all) await metOthers(one, count - 1);
  } catch (error) {
    await Promise.all(nodes.map((node) => node.stop()));
    throw error;
  }
  return { nodes, options: all };
}

/** Waits until a node knows the others: a client that asks it before would never hear of them. */
async function metOthers({ address, cqlPort }: NodeOptions, others: number): Promise<void> {
  if (others === 0) return;
  const client = new cassandra.Client({
    contactPoints: [`${address}:${cqlPort}`],
    policies: {
      loadBalancing: new cassandra.policies.loadBalancing.AllowListPolicy(new RoundRobinPolicy(), [
        `${address}:${cqlPort}`,
      ]),
    },
  });
  try {
    await client.connect();
    for (const deadline = Date.now() + START_MS; ; await wait(POLL_MS)) {
      const { rows } = await client.execute('SELECT rpc_address, tokens FROM system.peers');
      if (rows.filter((row) => row.rpc_address !== null && row.tokens !== null).length === others) return;
      if (Date.now() > deadline) throw new Error(`The Cassandra node at ${address} does not know the others`);
    }
  } finally {
    await client.shutdown();
  }
}

/** A port that is free on loopback addresses. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}

/** Whether a node takes connections. */
const accepts = ({ address, cqlPort }: NodeOptions): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(cqlPort, address);
    const answer = (accepted: boolean): void => {
      socket.destroy();
      resolve(accepted);
    };
    socket.once('connect', () => answer(true)).once('error', () => answer(false));
  });

/** Waits for the line that says it takes CQL. Its log is read on and dropped, so that it never waits for us. */
async function ready(child: ChildProcess, address: string): Promise<void> {
  const last: string[] = [];
  await new Promise<void>((resolve, reject) => {
    const fail = (why: string): void => {
      child.kill('SIGKILL');
      reject(new Error(`The Cassandra node at ${address} did not start: ${why}\n${last.join('\n')}`));
    };
    const timer = setTimeout(() => fail(`not within ${START_MS / 1_000} s`), START_MS);
    child.once('error', (error) => fail(error.message));
    const onExit = (code: number | null, signal: string | null) => fail(`it ended with ${signal ?? code}`);
    child.once('exit', onExit);
    for (const stream of [child.stdout!, child.stderr!]) {
      createInterface({ input: stream }).on('line', (line) => {
        last.push(line);
        if (last.length > TOLD_LINES) last.shift();
        if (!line.includes(READY)) return;
        clearTimeout(timer);
        child.off('exit', onExit);
        resolve();
      });
    }
  });
}

/** As in docker-compose.yml where it matters: Paxos v2 and a commit log that is synced before a write is answered. */
function yaml({ address, cqlPort, storagePort, seed, directory, settings = {} }: NodeOptions): string {
  const data = (name: string): string => JSON.stringify(join(directory, 'data', name));
  const lines: Record<string, string> = {
    cluster_name: 'ebbmark-test',
    num_tokens: '1',
    allocate_tokens_for_local_replication_factor: '3',
    partitioner: 'org.apache.cassandra.dht.Murmur3Partitioner',
    endpoint_snitch: 'SimpleSnitch',
    listen_address: address,
    rpc_address: address,
    native_transport_port: String(cqlPort),
    storage_port: String(storagePort),
    commitlog_sync: 'group',
    commitlog_sync_group_window: '2ms',
    paxos_variant: 'v2',
    auto_snapshot: 'false',
    seed_provider: `[{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{seeds: "${seed}:${storagePort}"}]}]`,
    data_file_directories: `[${data('data')}]`,
    commitlog_directory: data('commitlog'),
    saved_caches_directory: data('saved_caches'),
    hints_directory: data('hints'),
    cdc_raw_directory: data('cdc_raw'),
    ...settings,
  };
  return Object.entries(lines)
    .map(([name, value]) => `${name}: ${value}\n`)
    .join('');
}

const LOGBACK = `<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%-5level %date{HH:mm:ss,SSS} %logger{20}: %msg%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="OUT"/></root></configuration>
`;

/** What Cassandra opens of the JDK: the list of its own conf/jvm17-server.options. */
const OPENS = [
  'java.base/java.io',
  'java.base/java.lang',
  'java.base/java.lang.module',
  'java.base/java.net',
  'java.base/java.nio',
  'java.base/java.util',
  'java.base/java.util.concurrent',
  'java.base/java.util.concurrent.atomic',
  'java.base/jdk.internal.loader',
  'java.base/jdk.internal.math',
  'java.base/jdk.internal.module',
  'java.base/jdk.internal.ref',
  'java.base/jdk.internal.reflect',
  'java.base/jdk.internal.util.jar',
  'java.base/sun.nio.ch',
  'jdk.management/com.sun.management.internal',
];
const EXPORTS = [
  'java.base/java.lang.ref',
  'java.base/jdk.internal.misc',
  'java.base/jdk.internal.ref',
  'java.base/sun.nio.ch',
  'java.management.rmi/com.sun.jmx.remote.internal.rmi',
  'java.rmi/sun.rmi.registry',
  'java.rmi/sun.rmi.server',
  'java.rmi/sun.rmi.transport.tcp',
  'java.sql/java.sql',
  'jdk.unsupported/sun.misc',
];

function javaArguments({ directory, heapMb = HEAP_MB }: NodeOptions, conf: string, jars: string): readonly string[] {
  const properties = {
    'jdk.attach.allowAttachSelf': 'true',
    'cassandra.config': `file://${join(conf, 'cassandra.yaml')}`,
    'logback.configurationFile': join(conf, 'logback.xml'),
    'cassandra.storagedir': join(directory, 'data'),
    'cassandra-foreground': 'yes',
    // A cluster of three on one machine has nobody to wait for.
    'cassandra.ring_delay_ms': '2000',
    'cassandra.skip_wait_for_gossip_to_settle': '0',
  };
  return [
    `-Xms${heapMb}m`,
    `-Xmx${heapMb}m`,
    ...OPENS.flatMap((name) => ['--add-opens', `${name}=ALL-UNNAMED`]),
    ...EXPORTS.flatMap((name) => ['--add-exports', `${name}=ALL-UNNAMED`]),
    ...Object.entries(properties).map(([name, value]) => `-D${name}=${value}`),
    '-cp',
    `${conf}:${join(jars, '*')}`,
    'org.apache.cassandra.service.CassandraDaemon',
  ];
}
