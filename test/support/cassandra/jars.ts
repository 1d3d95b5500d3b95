/** Cassandra as jars that Maven brings, once, into the user's cache: for machines with Java and without Docker. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export const CASSANDRA_VERSION = '5.0.4';
/** Cassandra 5.0 runs on these. */
const JAVA_MAJORS = [11, 17];
const MAVEN_MS = 600_000;

/** Why jars can't be used here, or null. */
export async function jarsFault(): Promise<string | null> {
  const java = await majorOfJava();
  if (java === null) return 'there is no java';
  if (!JAVA_MAJORS.includes(java)) return `java is of version ${java}, not ${JAVA_MAJORS.join(' or ')}`;
  if (existsSync(cacheDirectory())) return null;
  return run('mvn', ['--version']).then(
    () => null,
    () => 'there is no mvn',
  );
}

async function majorOfJava(): Promise<number | null> {
  try {
    const { stderr } = await run('java', ['-version']);
    const major = /version "(\d+)/.exec(stderr)?.[1];
    return major === undefined ? null : Number(major);
  } catch {
    return null;
  }
}

const cacheDirectory = (): string =>
  join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'ebbmark', `cassandra-${CASSANDRA_VERSION}`);

/** The directory of the jars; brings them where they aren't there yet (66 MB). */
export async function cassandraJars(): Promise<string> {
  const target = cacheDirectory();
  if (existsSync(target)) return target;
  await mkdir(join(target, '..'), { recursive: true });
  // Into a directory beside it, then renamed: what stands there is whole, also where two come at once.
  const temporary = await mkdtemp(`${target}.`);
  try {
    const pom = join(temporary, 'pom.xml');
    await writeFile(pom, POM);
    const out = join(temporary, 'jars');
    const goal = ['dependency:copy-dependencies', '-DincludeScope=runtime', `-DoutputDirectory=${out}`];
    await run('mvn', ['-q', '-B', '-f', pom, ...goal], { timeout: MAVEN_MS });
    await rename(out, target).catch((error: NodeJS.ErrnoException) => {
      if (!existsSync(target)) throw error;
    });
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
  return target;
}

const POM = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>ebbmark</groupId><artifactId>cassandra-node</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId>
<version>${CASSANDRA_VERSION}</version></dependency></dependencies></project>
`;
