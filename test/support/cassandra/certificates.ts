/** Certificates for a node and a client, made by openssl, and the stores of them that Java reads. */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Of the stores; they lie in a directory that goes with the test. */
export const STORE_PASSWORD = 'test-store';

export interface Certificates {
  /** Who signs the others. */
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  /** A certificate that says it signs others, and has signed none of these. */
  readonly otherCa: string;
  /** What a node needs to show itself, and to check clients. */
  readonly keystore: string;
  readonly truststore: string;
}

/** @param address which the node's certificate names */
export async function makeCertificates(directory: string, address: string): Promise<Certificates> {
  await mkdir(directory, { recursive: true });
  const at = (name: string): string => join(directory, name);
  const openssl = (...args: readonly string[]) => run('openssl', args);
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const days = ['-days', '2'];
  const makeCa = (name: string) =>
    openssl(
      'req',
      '-x509',
      ...newKey,
      ...days,
      '-subj',
      `/CN=${name}`,
      '-keyout',
      at(`${name}.key`),
      '-out',
      at(`${name}.crt`),
    );
  const sign = async (name: string, extension: string): Promise<void> => {
    await openssl('req', ...newKey, '-subj', `/CN=${name}`, '-keyout', at(`${name}.key`), '-out', at(`${name}.csr`));
    await writeFile(at(`${name}.ext`), extension);
    const signer = ['-CA', at('ca.crt'), '-CAkey', at('ca.key'), '-CAcreateserial', '-extfile', at(`${name}.ext`)];
    await openssl('x509', '-req', ...days, '-in', at(`${name}.csr`), ...signer, '-out', at(`${name}.crt`));
  };
  await makeCa('ca');
  await makeCa('other');
  await sign('node', `subjectAltName=IP:${address}\n`);
  await sign('client', 'extendedKeyUsage=clientAuth\n');
  const bundle = ['-inkey', at('node.key'), '-in', at('node.crt'), '-certfile', at('ca.crt')];
  await openssl(
    'pkcs12',
    '-export',
    ...bundle,
    '-name',
    'node',
    '-passout',
    `pass:${STORE_PASSWORD}`,
    '-out',
    at('keystore.p12'),
  );
  const store = ['-keystore', at('truststore.p12'), '-storetype', 'PKCS12', '-storepass', STORE_PASSWORD];
  await run('keytool', ['-importcert', '-noprompt', '-alias', 'ca', '-file', at('ca.crt'), ...store]);
  return {
    ca: at('ca.crt'),
    cert: at('client.crt'),
    key: at('client.key'),
    otherCa: at('other.crt'),
    keystore: at('keystore.p12'),
    truststore: at('truststore.p12'),
  };
}
