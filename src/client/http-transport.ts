import http from 'node:http';
import https from 'node:https';
import { type ConnectionOptions, createSecureContext } from 'node:tls';
import { context, propagation } from '@opentelemetry/api';
import { invalid } from '../core/errors.ts';
import { currentTls, type TlsCredentials, type TlsSource } from '../core/tls.ts';
import { ConnectionError } from './errors.ts';

export interface HttpCall {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Behind the server's address, query and all. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** From the call to the end of its answer. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /**
   * What the signal does: `cut` gives the call up; `ask` only tells the server that we wait no longer, by closing our
   * half of the connection. What it has handed to the connection before still arrives, what it has not it knows to be
   * unsent: nothing is lost in between. The call then answers null where the server has no more to say.
   */
  readonly onAbort?: 'cut' | 'ask';
}

export interface HttpAnswer {
  readonly status: number;
  readonly text: string;
}

type SecureOptions = Pick<ConnectionOptions, 'secureContext'>;

/** How long a server may take to answer, or to close, once it knows that nobody waits any longer. */
const ASKED_MS = 5_000;

/** Calls to one server, on connections that are kept. */
export class HttpTransport {
  readonly url: string;
  readonly #target: http.RequestOptions;
  readonly #agent: http.Agent;
  readonly #request: typeof http.request;
  readonly #connected: 'connect' | 'secureConnect';
  readonly #basePath: string;
  readonly #authorization: Readonly<Record<string, string>>;
  readonly #secure: () => SecureOptions;

  /**
   * @param key an API key, shown by every call; null: none
   * @param tls for an https address: what proves who we are, and whom to believe
   * @throws QueueError `invalid-input` where the address is none, or the certificates are
   */
  constructor(address: string | URL, key: string | null, tls: TlsSource = {}) {
    const url = parseAddress(address);
    const isTls = url.protocol === 'https:';
    // Without user and password: it is shown in errors.
    this.url = `${url.origin}${url.pathname}`.replace(/\/$/, '');
    this.#secure = isTls ? secureOptionsOf(tls) : () => ({});
    checkTls(this.#secure);
    this.#basePath = url.pathname.replace(/\/$/, '');
    this.#agent = isTls ? new https.Agent({ keepAlive: true }) : new http.Agent({ keepAlive: true });
    this.#authorization = key === null ? {} : { authorization: `Bearer ${key}` };
    this.#request = isTls ? https.request : http.request;
    // Nothing of a call goes out before that.
    this.#connected = isTls ? 'secureConnect' : 'connect';
    const host = url.hostname.replace(/^\[|\]$/g, '');
    this.#target = {
      agent: this.#agent,
      host,
      port: url.port === '' ? (isTls ? 443 : 80) : Number(url.port),
      ...(url.username === ''
        ? {}
        : { auth: `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}` }),
    };
  }

  /** @throws ConnectionError; the signal's reason */
  send(call: HttpCall & { readonly onAbort?: 'cut' }): Promise<HttpAnswer>;
  send(call: HttpCall): Promise<HttpAnswer | null>;
  send({ method, path, headers = {}, body, timeoutMs, signal, onAbort = 'cut' }: HttpCall): Promise<HttpAnswer | null> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        if (onAbort === 'ask') resolve(null);
        else reject(signal.reason);
        return;
      }
      let asked = false;
      const sent: Record<string, string | number> = {
        accept: 'application/json',
        ...(body === undefined
          ? {}
          : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
        ...headers,
      };
      propagation.inject(context.active(), sent);
      const { request, mayHaveArrived } = this.#open(method, path, sent);
      const end = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', abort);
      };
      const fail = (error: Error): void => {
        end();
        if (asked) resolve(null);
        else if (signal?.aborted) reject(signal.reason);
        else reject(this.#failure(error, mayHaveArrived(), request.reusedSocket));
      };
      const abort = (): void => {
        asked = onAbort === 'ask';
        // Nothing has gone out yet, so nothing can come back.
        if (!asked || request.socket === null || !mayHaveArrived()) request.destroy();
        else {
          request.socket.end();
          clearTimeout(timer);
          timer = setTimeout(() => request.destroy(), ASKED_MS);
        }
      };
      let timer = setTimeout(() => request.destroy(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
      signal?.addEventListener('abort', abort, { once: true });
      // Not once: a connection that breaks amid an answer tells it to both, and to the request maybe twice.
      request.on('error', fail);
      request.once('response', (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('error', fail);
        response.once('end', () => {
          end();
          resolve({ status: response.statusCode!, text });
        });
      });
      request.end(body);
    });
  }

  /**
   * A GET whose answer is read as it comes. Whoever asked reads it to its end, or destroys it.
   * @param timeoutMs how long nothing may come
   * @throws ConnectionError
   */
  stream(path: string, accept: string, timeoutMs: number): Promise<http.IncomingMessage> {
    return new Promise((resolve, reject) => {
      const { request, mayHaveArrived } = this.#open('GET', path, { accept });
      request.setTimeout(timeoutMs, () => request.destroy(new Error(`nothing came within ${timeoutMs} ms`)));
      request.on('error', (error) => reject(this.#failure(error, mayHaveArrived(), request.reusedSocket)));
      request.once('response', resolve);
      request.end();
    });
  }

  /** Cuts all calls, and lets go of the connections. */
  close(): void {
    this.#agent.destroy();
  }

  /** Begins a request, with our key and certificates. @throws ConnectionError where these cannot be had */
  #open(
    method: HttpCall['method'],
    path: string,
    headers: http.OutgoingHttpHeaders,
  ): { readonly request: http.ClientRequest; readonly mayHaveArrived: () => boolean } {
    let secure: SecureOptions;
    try {
      secure = this.#secure();
    } catch (error) {
      throw this.#failure(error as Error, false, false);
    }
    const request = this.#request({
      ...this.#target,
      ...secure,
      method,
      path: this.#basePath + path,
      headers: { ...this.#authorization, ...headers },
    });
    let arrived = false;
    request.once('socket', (socket) => {
      if (!socket.connecting) arrived = true;
      else
        socket.once(this.#connected, () => {
          arrived = true;
        });
    });
    return { request, mayHaveArrived: () => arrived };
  }

  #failure(error: NodeJS.ErrnoException, mayHaveArrived: boolean, reused: boolean): ConnectionError {
    const wasIdle = reused && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
    return new ConnectionError(this.url, `gives no answer: ${error.code ?? error.message}`, {
      mayHaveArrived,
      wasIdle,
      cause: error,
    });
  }
}

/**
 * What a new connection is made with. A connection that is kept goes on being used after a renewal: it was admitted.
 * Sockets are kept by a name that has the text of all certificates in it, but not a context: that costs nothing a call.
 */
function secureOptionsOf(source: TlsSource): () => SecureOptions {
  let known: TlsCredentials | null = null;
  let options: SecureOptions = {};
  return () => {
    const tls = currentTls(source);
    if (tls !== known) {
      options = { secureContext: createSecureContext({ ...tls, minVersion: 'TLSv1.2' }) };
      known = tls;
    }
    return options;
  };
}

function checkTls(secureOptions: () => SecureOptions): void {
  try {
    secureOptions();
  } catch (error) {
    // The text is OpenSSL's, and the value is a key or a certificate: neither is shown.
    const rule = `certificates and a key that fit (${(error as NodeJS.ErrnoException).code ?? 'not PEM'})`;
    throw invalid('/tls', '…', rule, '{"ca": "-----BEGIN CERTIFICATE-----\\n…"}');
  }
}

function parseAddress(address: string | URL): URL {
  const text = String(address);
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:') || url.search !== '' || url.hash !== '') {
    throw invalid(
      '/url',
      withoutLogin(text),
      'the address of a server (http or https, without a query)',
      '"http://127.0.0.1:8080"',
    );
  }
  return url;
}

/** What stands before an @ may be a password. */
const withoutLogin = (text: string): string => text.replace(/^.*@/s, '…@');
