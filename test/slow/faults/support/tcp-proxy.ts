/** A TCP proxy before a node, which can delay answers, hold them back, lose them, or be gone: what a network does to a client. */
import { once } from 'node:events';
import net from 'node:net';

export class TcpProxy {
  readonly #target: { readonly host: string; readonly port: number };
  readonly #pairs = new Set<{ readonly client: net.Socket; readonly node: net.Socket }>();
  #server: net.Server | null = null;
  #holding = false;
  /** How much later answers come, in milliseconds; in their order. */
  delayMs = 0;

  /** @param target `host:port` of the node */
  constructor(target: string) {
    const at = target.lastIndexOf(':');
    this.#target = { host: target.slice(0, at), port: Number(target.slice(at + 1)) };
  }

  /** @param port 0 takes a free one. @returns the port */
  async listen(port = 0): Promise<number> {
    const server = net.createServer((client) => this.#connect(client)).listen(port, '127.0.0.1');
    await once(server, 'listening');
    this.#server = server;
    return (server.address() as net.AddressInfo).port;
  }

  /** Requests go through from now on, answers don't. */
  hold(): void {
    this.#holding = true;
    for (const { node } of this.#pairs) node.pause();
  }

  /** Answers that were held back go out, late. */
  release(): void {
    this.#holding = false;
    for (const { node } of this.#pairs) node.resume();
  }

  /** Breaks all connections; answers that were held back are lost. New connections work. */
  cut(): void {
    this.#holding = false;
    for (const { client, node } of this.#pairs) {
      client.destroy();
      node.destroy();
    }
  }

  async close(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    server?.close();
    this.cut();
    if (server?.listening) await once(server, 'close');
  }

  #connect(client: net.Socket): void {
    const node = net.connect(this.#target);
    const pair = { client, node };
    this.#pairs.add(pair);
    client.on('data', (chunk) => node.write(chunk));
    let sendAt = 0;
    node.on('data', (chunk) => {
      // In order, also where the delay has just become shorter.
      sendAt = Math.max(sendAt, performance.now() + this.delayMs);
      if (this.delayMs === 0 && sendAt <= performance.now()) client.write(chunk);
      else setTimeout(() => client.write(chunk), sendAt - performance.now());
    });
    if (this.#holding) node.pause();
    for (const [one, other] of [
      [client, node],
      [node, client],
    ] as const) {
      one.on('error', () => {});
      one.on('close', () => {
        other.destroy();
        this.#pairs.delete(pair);
      });
    }
  }
}
