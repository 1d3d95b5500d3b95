/** An HTTP proxy that delivers each request twice, at the same time, and answers with one of the two answers in turn. */
import { once } from 'node:events';
import http from 'node:http';
import type net from 'node:net';

export class DoublingProxy {
  readonly #target: URL;
  readonly #server: http.Server;
  readonly #agent = new http.Agent({ keepAlive: true });
  /** Requests that came, each of which went on twice. */
  requests = 0;

  /** @param target the server's address */
  constructor(target: string) {
    this.#target = new URL(target);
    this.#server = http.createServer((request, response) => {
      this.#pass(request, response).catch(() => response.destroy());
    });
  }

  /** @returns its address */
  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    this.#agent.destroy();
    await once(this.#server, 'close');
  }

  async #pass(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const nth = this.requests++;
    const body = await bytesOf(request);
    const answers = [this.#send(request, body), this.#send(request, body)] as const;
    // What is answered to the other one reaches nobody.
    answers[(nth + 1) % 2]!.catch(() => {});
    const { status, headers, bytes } = await answers[nth % 2]!;
    response.writeHead(status, headers).end(bytes);
  }

  async #send({ method, url, headers }: http.IncomingMessage, body: Buffer) {
    const { hostname, port } = this.#target;
    const { connection: _connection, ...rest } = headers;
    const sent = http.request({
      hostname,
      port,
      method,
      path: url,
      headers: { ...rest, host: this.#target.host },
      agent: this.#agent,
    });
    sent.end(body);
    const [answer] = (await once(sent, 'response')) as [http.IncomingMessage];
    return { status: answer.statusCode!, headers: answer.headers, bytes: await bytesOf(answer) };
  }
}

async function bytesOf(stream: http.IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
