/**
 * TLS beneath HTTP. A connection goes three steps, and has one time for all of them until it is secure:
 *
 *     accepted ──(first byte is TLS's)──▶ handshake ──▶ secure: HTTP's, with its own limits
 *         └─────(any other)────▶ 400 in plain text, and closed
 *
 * Until it is secure nobody but this file knows of it: `server.close()` would wait for it, and HTTP cannot close it.
 */
import type { Server } from 'node:https';
import type { Socket } from 'node:net';
import type { SecureContextOptions, TLSSocket } from 'node:tls';
import { QueueError } from '../core/errors.ts';
import type { HttpLogger } from './app.ts';
import { endWith, lastAnswer } from './last-words.ts';

/** What a server shows, and whom it admits, as PEM text. */
export interface ServerTls {
  /** Its certificate, with those in between behind it. */
  readonly cert: string;
  readonly key: string;
  /** Certificates of who signs those of clients; given, a client without one is not admitted. */
  readonly clientCa?: string;
}

/** From the connection to the end of its handshake, in milliseconds. */
const HANDSHAKE_MS = 10_000;
/** What a TLS connection begins with: the type of a handshake's record (RFC 8446, section 5.1). */
const HANDSHAKE_RECORD = 0x16;

export const contextOf = ({ cert, key, clientCa }: ServerTls): SecureContextOptions => ({
  cert,
  key,
  ...(clientCa === undefined ? {} : { ca: clientCa }),
  minVersion: 'TLSv1.2',
});

/** What an HTTPS server takes beside HTTP's options. */
export const httpsOptions = (tls: ServerTls, handshakeMs = HANDSHAKE_MS) => ({
  ...contextOf(tls),
  handshakeTimeout: handshakeMs,
  requestCert: tls.clientCa !== undefined,
  // Refused within the handshake: nothing of HTTP is read from who is not admitted.
  rejectUnauthorized: tls.clientCa !== undefined,
});

/** Connections that are not secure yet. */
export class Handshakes {
  readonly #log: HttpLogger | null;
  readonly #handshakeMs: number;
  /** By the address of the other end, since the socket above a raw one does not name it. */
  readonly #underWay = new Map<string, Socket>();

  constructor(server: Server, log: HttpLogger | null, handshakeMs = HANDSHAKE_MS) {
    this.#log = log;
    this.#handshakeMs = handshakeMs;
    const begin = server.listeners('connection');
    server.removeAllListeners('connection');
    server.on('connection', (socket: Socket) =>
      this.#accept(socket, () => {
        for (const listener of begin) listener.call(server, socket);
      }),
    );
    server.on('secureConnection', (socket: TLSSocket) => this.#underWay.delete(otherEnd(socket)));
    server.on('tlsClientError', (error: NodeJS.ErrnoException, socket: TLSSocket) => {
      // A certificate that is refused closes the connection, and only the socket says why.
      const code = socket.authorizationError ?? error.code;
      this.#log?.debug({ code: String(code), ip: socket.remoteAddress }, 'a TLS handshake failed');
    });
  }

  /** Ends all that are under way. */
  close(): void {
    for (const socket of this.#underWay.values()) socket.destroy();
  }

  #accept(socket: Socket, begin: () => void): void {
    const end = otherEnd(socket);
    this.#underWay.set(end, socket);
    // Until TLS or HTTP has it, nobody else listens: an error would end the process.
    const ignore = (): void => {};
    socket.on('error', ignore);
    const timer = setTimeout(() => socket.destroy(), this.#handshakeMs);
    socket.once('close', () => {
      clearTimeout(timer);
      if (this.#underWay.get(end) === socket) this.#underWay.delete(end);
    });
    socket.once('readable', () => {
      const first = socket.read() as Buffer | null;
      // It ended before it said anything.
      if (first === null) socket.destroy();
      else if (first[0] === HANDSHAKE_RECORD) {
        clearTimeout(timer);
        socket.unshift(first);
        begin();
      } else {
        this.#log?.debug({ ip: socket.remoteAddress }, 'a call in plain text to a port that speaks TLS');
        // What is left of the request is read and dropped: closing with bytes unread resets the connection.
        endWith(socket.resume(), PLAIN_TEXT);
      }
    });
  }
}

const PLAIN_TEXT = lastAnswer(
  new QueueError(
    'invalid-input',
    'This port speaks TLS (1.2 or newer); for example: https:// where the address says http://',
  ),
);

const otherEnd = (socket: Socket): string => `${socket.remoteAddress} ${socket.remotePort}`;
