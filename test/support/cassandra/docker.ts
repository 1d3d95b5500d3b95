/**
 * Cassandra in a container, for machines with Docker. testcontainers is loaded only when it is asked for: it takes a
 * second, and its newer versions need a newer Node than this package does.
 */

const IMAGE = 'cassandra:5.0';
const CQL_PORT = 9042;
const START_MS = 300_000;

/** The same settings as in docker-compose.yml; the image's own variables don't reach them. */
const SETTINGS = [
  '-Dcassandra.config.allow_system_properties=true',
  '-Dcassandra.settings.paxos_variant=v2',
  '-Dcassandra.settings.commitlog_sync=group',
  '-Dcassandra.settings.commitlog_sync_group_window=2ms',
  '-Dcassandra.settings.commitlog_sync_period=0ms',
  '-Dcassandra.settings.auto_snapshot=false',
  '-Dcassandra.skip_wait_for_gossip_to_settle=0',
];

/** Why Docker can't be used here, or null. */
export async function dockerFault(): Promise<string | null> {
  try {
    const { getContainerRuntimeClient } = await import('testcontainers');
    await getContainerRuntimeClient();
    return null;
  } catch (error) {
    return error instanceof TypeError ? 'testcontainers does not run on this Node' : 'no engine answers';
  }
}

/** Starts a node; it goes with the process that started it. */
export async function startContainer(): Promise<{ readonly hosts: string; stop(): Promise<void> }> {
  const { GenericContainer, Wait } = await import('testcontainers');
  const container = await new GenericContainer(IMAGE)
    .withEnvironment({ MAX_HEAP_SIZE: '512M', HEAP_NEWSIZE: '128M', JVM_EXTRA_OPTS: SETTINGS.join(' ') })
    .withExposedPorts(CQL_PORT)
    .withWaitStrategy(Wait.forLogMessage(/Starting listening for CQL clients/))
    .withStartupTimeout(START_MS)
    .start();
  const hosts = `${container.getHost()}:${container.getMappedPort(CQL_PORT)}`;
  return { hosts, stop: async () => void (await container.stop()) };
}
