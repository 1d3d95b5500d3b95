import type { ConnectionError } from '../client/errors.ts';
import type { StoreAddress } from '../config.ts';
import { safeText } from '../http/text.ts';
import { readServerRecord } from './server-record.ts';

/** How a command ends when it could not do what it was asked. */
export const EXIT = { ok: 0, failed: 1, usage: 2 } as const;

/** Codes that say that a value is none that could ever be taken. */
const BAD_VALUES: ReadonlySet<string> = new Set([
  'invalid-input',
  'topic-invalid',
  'lease-invalid',
  'payload-too-large',
]);

/** The exit code for what was refused: all of it for a value that was given, or anything else. */
export const exitOf = (codes: readonly string[]): number =>
  codes.every((code) => BAD_VALUES.has(code)) ? EXIT.usage : EXIT.failed;

/** A failure whose text is for the person at the terminal: what happened, and what to do next. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly exitCode: number;

  constructor(message: string, exitCode: number = EXIT.failed) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** The command was called in a way that makes no sense. */
export const usage = (message: string): CommandError => new CommandError(message, EXIT.usage);

/** A store that has to be there, or to be newer, is not. */
export const outdated = (message: string, store: string): CommandError =>
  new CommandError(`${message}.\nCreate or upgrade it:   ebbmark migrate --store '${store}'`);

/** Nobody could call a server that asks for keys. */
export const noKey = (store: string): CommandError =>
  new CommandError(
    [
      'Calls need an API key here, and there is none that is good. Make the first one:',
      `  ebbmark keys create me --role admin --role produce --role consume --store '${store}'`,
      'or ask for none: EBBMARK_REQUIRE_KEYS=off on loopback, --allow-public elsewhere (then anyone who reaches the port can do anything).',
    ].join('\n'),
  );

/** A file that has to be there is not. */
export const noStore = ({ path, text }: { readonly path: string; readonly text: string }): CommandError =>
  outdated(`There is no store at ${path}`, text);

/**
 * A server, or a command, has the store open: which one, and what to do.
 * @param for_ what was to be done: run a server, make calls, or work on the file itself, which no server can do instead
 */
export function inUseBy(address: StoreAddress, for_: 'serve' | 'calls' | 'file'): string {
  const record = address.kind === 'sqlite' ? readServerRecord(address.path) : null;
  const text = safeText(address.text, 500);
  if (record === null) {
    return `${text} is in use: another process has it open, a server or a command on the store. Stop it first, or wait until it ends.`;
  }
  const { pid } = record;
  const url = safeText(record.url, 200);
  const lines = [`${text} is in use: a server with this store is running already (process ${pid}, ${url}).`];
  if (for_ === 'serve') lines.push(`Use that one:           --url ${url}, or EBBMARK_URL`);
  if (for_ === 'calls') lines.push(`Ask that server:        --url ${url} in place of --store`);
  lines.push(for_ === 'file' ? `Stop it first:          kill ${pid}` : `Or stop it first:       kill ${pid}`);
  if (for_ === 'serve') lines.push('Or run a second one:    --store sqlite:OTHER-PATH --listen 127.0.0.1:OTHER-PORT');
  return lines.join('\n');
}

/** No server answers, or something that is none. */
export function unreachable({ message, url, cause, mayHaveArrived }: ConnectionError): string {
  if (cause === undefined) return message;
  const code = String((cause as NodeJS.ErrnoException).code ?? (cause as Error).message);
  if (url.startsWith('https:') && !mayHaveArrived && CERTIFICATE_FAULT.test(code)) {
    return [
      `The certificate of ${url} is not believed (${code}).`,
      'Say who signed it:  --tls-ca PATH, or EBBMARK_TLS_CA',
    ].join('\n');
  }
  if (url.startsWith('https:') && mayHaveArrived) {
    return [
      `${url} broke off the connection (${code}).`,
      'Where it asks for a certificate:  --tls-client-cert PATH and --tls-client-key PATH,',
      '                                  or EBBMARK_TLS_CLIENT_CERT and EBBMARK_TLS_CLIENT_KEY',
    ].join('\n');
  }
  return [
    `No server answers at ${url} (${code}).`,
    'Start one:              ebbmark serve',
    'Say where it runs:      --url URL, or EBBMARK_URL',
    'Open the store itself:  --store sqlite:PATH, or --store cassandra://…',
  ].join('\n');
}

/** Codes of OpenSSL's look at a certificate, and of Node's look at its names. */
const CERTIFICATE_FAULT = /^(?:CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|INVALID_|ERR_TLS_CERT_)/;
