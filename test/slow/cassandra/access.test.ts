/** A node that asks for a password and a certificate: who gets in, and what the others are told. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CassandraCredentials } from '../../../src/store/cassandra/address.ts';
import { openCassandraStore } from '../../../src/store/cassandra/store.ts';
import { type Certificates, makeCertificates, STORE_PASSWORD } from '../../support/cassandra/certificates.ts';
import { jarsFault } from '../../support/cassandra/jars.ts';
import { type CassandraNode, startCluster } from '../../support/cassandra/node.ts';

const fault = await jarsFault();

describe.skipIf(fault !== null)(`a node that is locked${fault === null ? '' : ` (not: ${fault})`}`, () => {
  let directory: string;
  let node: CassandraNode;
  let address: string;
  let certificates: Certificates;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'ebbmark-locked-'));
    certificates = await makeCertificates(join(directory, 'tls'), '127.0.0.1');
    const { keystore, truststore } = certificates;
    const stores = `keystore: ${keystore}, keystore_password: ${STORE_PASSWORD}, truststore: ${truststore}, truststore_password: ${STORE_PASSWORD}`;
    const cluster = await startCluster(directory, 1, {
      settings: {
        authenticator: 'PasswordAuthenticator',
        authorizer: 'CassandraAuthorizer',
        client_encryption_options: `{enabled: true, require_client_auth: true, store_type: PKCS12, ${stores}}`,
      },
    });
    node = cluster.nodes[0]!;
    address = `cassandra://127.0.0.1:${cluster.options[0]!.cqlPort}/locked`;
    await writeFile(join(directory, 'password'), 'cassandra\n');
  });
  afterAll(async () => {
    await node?.stop();
    await rm(directory, { recursive: true, force: true });
  });
  const keys = (): CassandraCredentials => ({
    user: 'cassandra',
    passwordFile: join(directory, 'password'),
    tlsCa: certificates.ca,
    tlsCert: certificates.cert,
    tlsKey: certificates.key,
  });
  const open = async (given: CassandraCredentials) => {
    const store = await openCassandraStore({ address, ...given });
    const found = await store.readTopic('t');
    await store.close();
    return found;
  };

  it('lets in who shows a certificate and knows the password', async () => {
    // The role is made some seconds after the node takes CQL.
    await expect
      .poll(() => open(keys()).catch((error) => error.message), { timeout: 60_000, interval: 1_000 })
      .toBeNull();
  });

  it.each<[string, (given: CassandraCredentials) => CassandraCredentials, RegExp]>([
    ['a wrong password', ({ passwordFile: _, ...given }) => ({ ...given, password: 'guess' }), /incorrect/],
    ['no password', ({ user: _, passwordFile: __, ...given }) => given, /requires authentication/],
    ['no certificate', ({ tlsCert: _, tlsKey: __, ...given }) => given, /no node answered/],
    [
      'a certificate of the node that somebody else signed',
      (given) => ({ ...given, tlsCa: certificates.otherCa }),
      /certificate/,
    ],
    ['no encryption', ({ user, passwordFile }) => ({ user: user!, passwordFile: passwordFile! }), /no node answered/],
  ])('refuses %s', async (_, change, message) => {
    await expect(open(change(keys()))).rejects.toMatchObject({
      name: 'StoreUnavailableError',
      message: expect.stringMatching(message),
    });
  });

  it('says nothing of passwords', async () => {
    const { passwordFile: _, ...others } = keys();
    const error = await open({ ...others, password: 'guess' }).catch((error: Error) => error);
    expect(`${error} ${JSON.stringify(error)}`).not.toContain('guess');
  });
});
