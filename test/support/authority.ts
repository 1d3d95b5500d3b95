/** Certificates as the tests need them, right and wrong, made in memory. */
import 'reflect-metadata';
import { webcrypto } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509';
import { onTestFinished } from 'vitest';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
/** Too short for OpenSSL, which has its own opinion when it is to use it. */
const WEAK = {
  name: 'RSASSA-PKCS1-v1_5',
  modulusLength: 512,
  publicExponent: new Uint8Array([1, 0, 1]),
  hash: 'SHA-256',
};
const DAY_MS = 86_400_000;

export interface Pair {
  readonly cert: string;
  readonly key: string;
}

export interface CertificateOptions {
  /** What it says that it is for; both when absent. */
  readonly uses?: readonly ('server' | 'client')[];
  /** Days from now at which it begins and ends; yesterday and tomorrow when absent. */
  readonly days?: readonly [number, number];
  /** Addresses that it names; 127.0.0.1 when absent. */
  readonly addresses?: readonly string[];
  /** With a key that nobody should use. */
  readonly isWeak?: boolean;
}

export interface Authority {
  /** Its own certificate. */
  readonly ca: string;
  issue(name: string, options?: CertificateOptions): Promise<Pair>;
}

const pem = (label: string, der: ArrayBuffer): string =>
  `-----BEGIN ${label}-----\n${Buffer.from(der).toString('base64').replace(/.{64}/g, '$&\n').trimEnd()}\n-----END ${label}-----\n`;

const newKeys = (isWeak = false) =>
  isWeak
    ? webcrypto.subtle.generateKey(WEAK, true, ['sign', 'verify'])
    : webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
const between = (from: number, to: number) => ({
  notBefore: new Date(Date.now() + from * DAY_MS),
  notAfter: new Date(Date.now() + to * DAY_MS),
});

/** Somebody who signs certificates. */
export async function makeAuthority(name: string): Promise<Authority> {
  const keys = await newKeys();
  const own = await X509CertificateGenerator.createSelfSigned({
    name: `CN=${name}`,
    keys,
    signingAlgorithm: ALGORITHM,
    ...between(-1, 30),
    extensions: [
      new BasicConstraintsExtension(true, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign, true),
    ],
  });
  return {
    ca: pem('CERTIFICATE', own.rawData),
    async issue(subject, options = {}) {
      const { uses = ['server', 'client'], days: [from, to] = [-1, 1], addresses = ['127.0.0.1'] } = options;
      const { publicKey, privateKey } = await newKeys(options.isWeak);
      const certificate = await X509CertificateGenerator.create({
        subject: `CN=${subject}`,
        issuer: own.subject,
        publicKey,
        signingKey: keys.privateKey,
        signingAlgorithm: ALGORITHM,
        ...between(from, to),
        extensions: [
          new ExtendedKeyUsageExtension(
            uses.map((use) => (use === 'server' ? ExtendedKeyUsage.serverAuth : ExtendedKeyUsage.clientAuth)),
          ),
          new SubjectAlternativeNameExtension(addresses.map((value) => ({ type: 'ip', value }))),
        ],
      });
      return {
        cert: pem('CERTIFICATE', certificate.rawData),
        key: pem('PRIVATE KEY', await webcrypto.subtle.exportKey('pkcs8', privateKey)),
      };
    },
  };
}

/** Writes texts to files that only their owner may read, in a directory that goes with the test. @returns their paths */
export async function writeFiles<N extends string>(texts: Readonly<Record<N, string>>): Promise<Record<N, string>> {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-tls-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const paths = {} as Record<N, string>;
  for (const name in texts) {
    paths[name] = join(directory, name);
    await writeFile(paths[name], texts[name], { mode: 0o600 });
  }
  return paths;
}
