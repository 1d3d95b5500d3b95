import { X509Certificate } from 'node:crypto';
import type { Logger } from 'pino';
import { ConfigError, type Flags, type SERVER_SETTINGS, SETTINGS, type Values } from '../config.ts';
import type { TlsCredentials } from '../core/tls.ts';
import type { HttpServer } from '../http/server.ts';
import type { ServerTls } from '../http/tls.ts';
import { readCallerTls, readServerTls, type TlsWarning } from '../tls-files.ts';

type Settings = Values<(typeof SERVER_SETTINGS)[number]>;

interface Files {
  readonly own: ServerTls | null;
  readonly toShow: TlsCredentials;
  readonly warnings: readonly TlsWarning[];
}

/** What a certificate must say that it is for, if it says anything, to be shown to servers (RFC 5280, 4.2.1.12). */
const CLIENT_AUTH = '1.3.6.1.5.5.7.3.2';

/** What a server shows to clients and to other servers, as its files were when they were last read and right. */
export class Certificates {
  readonly #settings: Settings;
  readonly #flags: Flags;
  #files: Files;

  /** @throws ConfigError that names each value, the rule and an example */
  constructor(settings: Settings, flags: Flags) {
    this.#settings = settings;
    this.#flags = flags;
    this.#files = this.#read();
  }

  /** Null: the server speaks plain HTTP. */
  get own(): ServerTls | null {
    return this.#files.own;
  }

  /** To other servers. The same object until it is renewed. */
  get toShow(): TlsCredentials {
    return this.#files.toShow;
  }

  /** Tells what is odd about the files, and about settings beside them. */
  warn(log: Logger): void {
    for (const { message, ...where } of this.#files.warnings) log.warn(where, message);
    if (this.own === null) return;
    const { advertise, store, tlsClientCa } = this.#settings;
    if (advertise?.startsWith('http:')) {
      log.warn(
        { advertise },
        'other servers are told to call in plain text a port that speaks TLS; advertise https://',
      );
    }
    // In a certificate without such a list all uses are allowed; the type knows only of those with one.
    const uses: readonly string[] | undefined = new X509Certificate(this.toShow.cert!).keyUsage;
    if (store.kind === 'cassandra' && tlsClientCa !== null && uses !== undefined && !uses.includes(CLIENT_AUTH)) {
      log.warn(
        { setting: SETTINGS.tlsClientCert.env },
        'the certificate that other servers are shown is not for clients (clientAuth): those that ask for one refuse it',
      );
    }
  }

  /** Reads all files again, and uses them from the next handshake on; where one is wrong, all stay as they were. */
  renew(server: HttpServer, log: Logger): void {
    try {
      const files = this.#read();
      server.renewTls(files.own!);
      this.#files = files;
      this.warn(log);
      log.info({ expires: new X509Certificate(files.own!.cert).validTo }, 'read the certificates again');
    } catch (error) {
      const faults = error instanceof ConfigError ? { faults: error.faults } : { err: error };
      log.error(faults, 'the certificates could not be renewed; those read before stay in use');
    }
  }

  #read(): Files {
    const server = readServerTls(this.#settings, this.#flags);
    const caller = readCallerTls(this.#settings, this.#flags);
    const own = server?.tls ?? null;
    return {
      own,
      toShow: { ...(own === null ? {} : { cert: own.cert, key: own.key }), ...caller.tls },
      warnings: [...(server?.warnings ?? []), ...caller.warnings],
    };
  }
}
