/** A real HTTP server on loopback that answers by a function and remembers what it was asked. */
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Fetcher, type FetcherOptions } from '../../../crawler-example/fetch.ts';

export interface Web {
  /** Of loopback, without a slash at its end. */
  readonly origin: string;
  readonly port: number;
  /** `host path` of each request, in order. */
  readonly asked: readonly { readonly host: string; readonly path: string; readonly at: number }[];
  /** How often a path was asked for, over all hosts. */
  count(path: string): number;
  close(): Promise<void>;
}

export async function serve(listener: RequestListener): Promise<Web> {
  const asked: { host: string; path: string; at: number }[] = [];
  const server = createServer((request, response) => {
    const path = request.url ?? '';
    asked.push({ host: request.headers.host ?? '', path, at: performance.now() });
    listener(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    origin: `http://127.0.0.1:${port}`,
    port,
    asked,
    count: (path) => asked.filter((request) => request.path === path).length,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

export interface Answer {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string | string[]>>;
  readonly body?: string | Buffer;
}

/** Answers by path; what isn't there is 404. A function can look at the request. */
export const site =
  (pages: Readonly<Record<string, Answer | ((request: IncomingMessage) => Answer)>>): RequestListener =>
  (request, response) => {
    const found = pages[request.url ?? ''];
    const answer = typeof found === 'function' ? found(request) : (found ?? { status: 404, body: 'not here' });
    send(response, answer);
  };

export function send(response: ServerResponse, { status = 200, headers = {}, body = '' }: Answer): void {
  response.writeHead(status, { 'content-type': 'text/html; charset=utf-8', ...headers });
  response.end(body);
}

/** A page of links. */
export const links = (...hrefs: readonly string[]): Answer => ({
  body: `<!doctype html><title>t</title>${hrefs.map((href) => `<a href="${href}">x</a>`).join(' ')}`,
});

/** A fetcher for loopback. */
export const newFetcher = (options: Partial<FetcherOptions> = {}): Fetcher =>
  new Fetcher({
    userAgent: 'ebbmark-crawler/0.1 (+test)',
    headersTimeoutMs: 5_000,
    totalTimeoutMs: 10_000,
    connectTimeoutMs: 5_000,
    connections: 4,
    allowPrivate: true,
    resolve: [],
    ...options,
  });
