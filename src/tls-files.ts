/** Reads the files of TLS, and holds them against each other, so that a wrong one stops the start and not a handshake. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { ConfigError, type Flags, SETTINGS, type SettingName, sourceOf, type Values } from './config.ts';
import type { TlsCredentials } from './core/tls.ts';
import type { ServerTls } from './http/tls.ts';

/** What was read, and what of it is odd enough to be told to who runs it. */
export interface TlsRead<T> {
  readonly tls: T;
  readonly warnings: readonly TlsWarning[];
}

export interface TlsWarning {
  readonly setting: string;
  readonly path: string;
  readonly message: string;
}

type ServerValues = Values<'tlsCert' | 'tlsKey' | 'tlsKeyPassphrase' | 'tlsClientCa'>;
type CallerValues = Values<'tlsCa' | 'tlsClientCert' | 'tlsClientKey'>;

/** @returns null where none of its settings is given @throws ConfigError that names each value, the rule and an example */
export function readServerTls(values: ServerValues, flags: Flags): TlsRead<ServerTls> | null {
  const files = new TlsFiles(flags);
  const own = files.pair('tlsCert', 'tlsKey', values, values.tlsKeyPassphrase);
  const clientCa = files.certificates('tlsClientCa', values.tlsClientCa);
  if (values.tlsCert === null && values.tlsKey === null) {
    if (values.tlsClientCa !== null) files.refuse('tlsClientCa', values.tlsClientCa, TOGETHER_WITH_CERT);
    if (values.tlsKeyPassphrase !== null) files.refuse('tlsKeyPassphrase', '…', TOGETHER_WITH_CERT);
  }
  const warnings = files.end();
  return own === null ? null : { tls: { ...own, ...(clientCa === null ? {} : { clientCa }) }, warnings };
}

/** @throws ConfigError that names each value, the rule and an example */
export function readCallerTls(values: CallerValues, flags: Flags): TlsRead<TlsCredentials> {
  const files = new TlsFiles(flags);
  const ca = files.certificates('tlsCa', values.tlsCa);
  const own = files.pair('tlsClientCert', 'tlsClientKey', values, null);
  const warnings = files.end();
  return { tls: { ...(ca === null ? {} : { ca }), ...own }, warnings };
}

const TOGETHER_WITH_CERT = `given together with the server's certificate and key (${SETTINGS.tlsCert.env}, ${SETTINGS.tlsKey.env})`;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

class TlsFiles {
  readonly #flags: Flags;
  readonly #faults: string[] = [];
  readonly #warnings: TlsWarning[] = [];

  constructor(flags: Flags) {
    this.#flags = flags;
  }

  /** @throws ConfigError where anything was refused */
  end(): readonly TlsWarning[] {
    if (this.#faults.length > 0) throw new ConfigError(this.#faults);
    return this.#warnings;
  }

  /** @param rule continues "is not …" */
  refuse(name: SettingName, value: string, rule: string): null {
    const { example } = SETTINGS[name];
    this.#faults.push(
      `${sourceOf(name, this.#flags)}: ${JSON.stringify(value)} is not ${rule}; for example: ${example}`,
    );
    return null;
  }

  /** A file of certificates as it is; null where it is not given or not right. */
  certificates(name: SettingName, path: string | null): string | null {
    const text = path === null ? null : this.#text(name, path);
    if (path === null || text === null) return null;
    return this.#parsed(name, path, text) === null ? null : text;
  }

  /** A certificate and its key; null where they are not given or not right. */
  pair<C extends SettingName, K extends SettingName>(
    certName: C,
    keyName: K,
    values: Readonly<Record<C | K, string | null>>,
    passphrase: string | null,
  ): { readonly cert: string; readonly key: string } | null {
    const certPath = values[certName];
    const keyPath = values[keyName];
    if (certPath === null && keyPath === null) return null;
    if (keyPath === null) {
      return this.refuse(certName, certPath!, `given together with its key (${SETTINGS[keyName].env})`);
    }
    if (certPath === null) {
      return this.refuse(keyName, keyPath, `given together with its certificate (${SETTINGS[certName].env})`);
    }
    const cert = this.#text(certName, certPath);
    const first = cert === null ? null : this.#parsed(certName, certPath, cert);
    const key = this.#key(keyName, keyPath, passphrase);
    if (cert === null || first === null || key === null) return null;
    if (!first.checkPrivateKey(createPrivateKey(key))) {
      return this.refuse(keyName, keyPath, `the key of the first certificate in ${JSON.stringify(certPath)}`);
    }
    try {
      createSecureContext({ cert, key });
    } catch (error) {
      return this.refuse(certName, certPath, `a certificate that TLS takes (${codeOf(error)})`);
    }
    return { cert, key };
  }

  /** The first certificate of a file. */
  #parsed(name: SettingName, path: string, text: string): X509Certificate | null {
    try {
      const certificates = text.match(CERTIFICATE)?.map((pem) => new X509Certificate(pem)) ?? [];
      for (const certificate of certificates) this.#checkTime(name, path, certificate);
      const [first] = certificates;
      if (first !== undefined) return first;
    } catch {
      // What stands between the two lines is no certificate.
    }
    return this.refuse(name, path, SETTINGS[name].rule);
  }

  #checkTime(name: SettingName, path: string, { subject, validFrom, validTo }: X509Certificate): void {
    const now = Date.now();
    const who = subject.replaceAll('\n', ', ');
    if (Date.parse(validTo) < now) this.#warn(name, path, `the certificate of ${who} has expired: ${validTo}`);
    else if (Date.parse(validFrom) > now)
      this.#warn(name, path, `the certificate of ${who} is not valid yet: ${validFrom}`);
  }

  /** A key as PEM that is not encrypted. */
  #key(name: SettingName, path: string, passphrase: string | null): string | null {
    const text = this.#text(name, path);
    if (text === null) return null;
    // Others than the owner and the group; Windows has no such bits.
    if (process.platform !== 'win32' && ((statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & 0o007) !== 0) {
      this.#warn(name, path, 'everyone on this machine may read or change this key; for example: chmod 600');
    }
    try {
      const key = createPrivateKey(passphrase === null ? { key: text } : { key: text, passphrase });
      return key.export({ type: 'pkcs8', format: 'pem' }).toString();
    } catch (error) {
      return this.refuse(name, path, keyRule(name, text, passphrase, codeOf(error)));
    }
  }

  #text(name: SettingName, path: string): string | null {
    try {
      return readFileSync(path, 'utf8');
    } catch (error) {
      return this.refuse(name, path, `a file that can be read (${codeOf(error)})`);
    }
  }

  #warn(name: SettingName, path: string, message: string): void {
    this.#warnings.push({ setting: sourceOf(name, this.#flags), path, message });
  }
}

function keyRule(name: SettingName, text: string, passphrase: string | null, code: string): string {
  if (!/-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(text)) return SETTINGS[name].rule;
  const isEncrypted = /-----BEGIN ENCRYPTED |^Proc-Type: 4,ENCRYPTED/m.test(text);
  if (!isEncrypted) return `${SETTINGS[name].rule} that can be read (${code})`;
  if (passphrase !== null) return `a key that the passphrase of ${SETTINGS.tlsKeyPassphrase.env} opens`;
  return name === 'tlsKey'
    ? `a key that is not encrypted, or given together with its passphrase (${SETTINGS.tlsKeyPassphrase.env})`
    : 'a key that is not encrypted';
}

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? 'error';
