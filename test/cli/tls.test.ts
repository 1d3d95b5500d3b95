/** TLS with real processes: the server by settings, its renewal under load, and the commands that speak to it. */

import type { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { Client } from '../../src/client/index.ts';
import { eventually } from '../http/support/server.ts';
import { type Authority, makeAuthority, type Pair, writeFiles } from '../support/authority.ts';
import { type Running, run, start } from './support/run.ts';

let authority: Authority;
let own: Pair;
let client: Pair;
beforeAll(async () => {
  authority = await makeAuthority('tests');
  own = await authority.issue('first', { uses: ['server'] });
  client = await authority.issue('client', { uses: ['client'] });
});

const write = () =>
  writeFiles({ cert: own.cert, key: own.key, ca: authority.ca, clientCert: client.cert, clientKey: client.key });

type Files = Awaited<ReturnType<typeof write>>;

const serverEnv = (files: Files) => ({
  EBBMARK_TLS_CERT: files.cert,
  EBBMARK_TLS_KEY: files.key,
  EBBMARK_TLS_CLIENT_CA: files.ca,
});
const clientEnv = (files: Files) => ({
  EBBMARK_TLS_CA: files.ca,
  EBBMARK_TLS_CLIENT_CERT: files.clientCert,
  EBBMARK_TLS_CLIENT_KEY: files.clientKey,
});

interface Served extends Running {
  readonly url: string;
}

async function serve(env: Readonly<Record<string, string>>, args: readonly string[] = []): Promise<Served> {
  const server = start(['serve', '--listen', '127.0.0.1:0', '--store', 'sqlite::memory:', ...args], { env });
  onTestFinished(async () => {
    server.child.kill('SIGKILL');
    await server.ended;
  });
  const [, url] = await server.until(/"url":"([^"]+)"/);
  return { ...server, url: url! };
}

/** Replaces a file as those do who renew certificates: at once, and never half. */
async function replace(path: string, text: string): Promise<void> {
  await writeFile(`${path}.new`, text, { mode: 0o600 });
  await rename(`${path}.new`, path);
}

/** The name in the certificate that the server shows. */
async function shownBy(url: string): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port), ca: authority.ca, ...client });
  await once(socket, 'secureConnect');
  const { subject } = socket.getPeerX509Certificate() as X509Certificate;
  socket.destroy();
  return subject;
}

it('is spoken by the server and by every way to call it, with certificates on both sides', async () => {
  const files = await write();
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-tls-'));
  const server = await serve(serverEnv(files), ['--store', `sqlite:${join(directory, 'queue.db')}`]);
  onTestFinished(() => rm(directory, { recursive: true }));
  expect(server.url).toMatch(/^https:/);
  const env = { ...clientEnv(files), EBBMARK_URL: server.url };
  expect(await run(['enqueue', 'mail', '1'], { env })).toMatchObject({ code: 0, err: '' });
  // By flags, in front of the command's name and behind it.
  const flags = ['--url', server.url, '--tls-ca', files.ca];
  const shown = ['--tls-client-cert', files.clientCert, '--tls-client-key', files.clientKey];
  expect(await run([...flags, 'lease', 'mail', ...shown])).toMatchObject({ code: 0, err: '' });
  const backup = (more: readonly string[]) => run(['backup', join(directory, 'copy.db'), ...more]);
  expect(await backup([...flags, ...shown])).toMatchObject({ code: 0, err: '' });
  const mistrusted = await backup(['--url', server.url, ...shown, '--force']);
  expect(mistrusted).toMatchObject({ code: 1, err: expect.stringContaining('is not believed') });
  expect(await run([...flags, 'backup', join(directory, 'other.db'), ...shown])).toMatchObject({ code: 0, err: '' });
  expect(await run([...flags, 'keys', 'list', ...shown])).toMatchObject({
    code: 1,
    err: expect.stringContaining('This server asks for no keys'),
  });

  const unknown = await run(['topics'], { env: { EBBMARK_URL: server.url } });
  expect(unknown).toMatchObject({ code: 1, out: '' });
  expect(unknown.err).toContain('is not believed (SELF_SIGNED_CERT_IN_CHAIN)');
  expect(unknown.err).toContain('EBBMARK_TLS_CA');
  const uninvited = await run(['topics'], { env: { EBBMARK_URL: server.url, EBBMARK_TLS_CA: files.ca } });
  expect(uninvited).toMatchObject({ code: 1, out: '' });
  expect(uninvited.err).toContain('EBBMARK_TLS_CLIENT_CERT');
  const misspelt = await run(['topics'], { env: { ...env, EBBMARK_TLS_CA: '/nowhere' } });
  expect(misspelt).toMatchObject({ code: 2, err: expect.stringMatching(/^EBBMARK_TLS_CA: "\/nowhere" is not a file/) });
  const plain = await run(['topics'], { env: { EBBMARK_URL: server.url.replace('https', 'http') } });
  expect(plain).toMatchObject({ code: 2, err: expect.stringContaining('This port speaks TLS') });
});

it('is renewed on SIGHUP under load, and not one call fails; what is wrong is not taken over', async () => {
  const files = await write();
  const server = await serve(serverEnv(files), ['--log-level', 'debug']);
  const trouble: unknown[] = [];
  // Clients one after the other, so that there are handshakes all the time, beside one that stays.
  const connectTo = (): Client =>
    new Client(server.url, {
      tls: { ca: authority.ca, ...client },
      retryMs: 0,
      onError: (error) => trouble.push(error),
    });
  let published = 0;
  let isOver = false;
  const publishing = async (isFresh: boolean): Promise<void> => {
    let it = connectTo();
    while (!isOver) {
      await it.publisher().publish('load', { n: published });
      published++;
      if (!isFresh) continue;
      await it.drain();
      it = connectTo();
    }
    await it.drain();
  };
  const load = [publishing(false), publishing(true), publishing(true)];
  const more = async (): Promise<void> => {
    const target = published + 50;
    await Promise.race([eventually(() => published >= target), ...load]);
  };

  await more();
  expect(await shownBy(server.url)).toBe('CN=first');
  let reads = 0;
  const renew = async (outcome: RegExp): Promise<void> => {
    server.child.kill('SIGHUP');
    reads++;
    await server.until(new RegExp(`(${outcome.source}[\\s\\S]*){${reads}}`));
  };
  for (const name of ['second', 'third']) {
    const next = await authority.issue(name);
    await replace(files.cert, next.cert);
    await replace(files.key, next.key);
    await renew(/read the certificates again/);
    expect(await shownBy(server.url)).toBe(`CN=${name}`);
    await more();
  }
  // Between the two files of a renewal: nothing is taken over, and the next signal finds both.
  const last = await authority.issue('last');
  await replace(files.cert, last.cert);
  server.child.kill('SIGHUP');
  const [line] = await server.until(/.*could not be renewed; those read before stay in use.*/);
  expect(line).toContain('is not the key of the first certificate');
  expect(await shownBy(server.url)).toBe('CN=third');
  await more();
  await replace(files.key, last.key);
  await renew(/read the certificates again/);
  expect(await shownBy(server.url)).toBe('CN=last');
  await more();

  isOver = true;
  await Promise.all(load);
  expect(trouble).toEqual([]);
  const { out } = await run(['topic', 'load', '--json'], { env: { ...clientEnv(files), EBBMARK_URL: server.url } });
  expect(JSON.parse(out)).toMatchObject({ counts: { ready: published } });
  server.child.kill('SIGTERM');
  expect(await server.ended).toMatchObject({ code: 0, err: '' });
});

it('ends a server without TLS on SIGHUP, as a terminal that is closed does', async () => {
  const server = await serve({});
  server.child.kill('SIGHUP');
  expect(await server.ended).toMatchObject({ code: 0, err: '' });
});

it('does not start with wrong files, and creates nothing', async () => {
  const files = await write();
  const args = ['serve', '--listen', '127.0.0.1:0', '--store', `sqlite:${files.cert}.db`];
  const { code, out, err } = await run(args, {
    env: { EBBMARK_TLS_CERT: files.cert, EBBMARK_TLS_KEY: files.clientKey },
  });
  expect({ code, out }).toEqual({ code: 2, out: '' });
  expect(err).toMatch(
    /^EBBMARK_TLS_KEY: "[^"]+clientKey" is not the key of the first certificate in "[^"]+cert"; for example: \S+\n$/,
  );
  expect(err.split('\n')).toHaveLength(2);
});

it('warns of a certificate that is over, of a key open to everyone, and of an address in plain text', async () => {
  const over = await authority.issue('over', { days: [-2, -1] });
  const files = await writeFiles({ cert: over.cert, key: over.key });
  await chmod(files.key, 0o604);
  const env = { EBBMARK_TLS_CERT: files.cert, EBBMARK_TLS_KEY: files.key };
  const server = await serve(env, ['--advertise', 'http://127.0.0.1:1']);
  const warnings = server
    .out()
    .split('\n')
    .filter((line) => line.includes('"level":"warn"'));
  expect(warnings).toEqual([
    expect.stringContaining('has expired'),
    expect.stringContaining('everyone on this machine'),
    expect.stringContaining('advertise https://'),
  ]);
});
