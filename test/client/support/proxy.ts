import { once } from 'node:events';
import net from 'node:net';

/** A way to a server that a test can break. */
export interface Passage {
  readonly url: string;
  /** Connections that were made. */
  readonly connections: () => number;
  /** Breaks what is connected; new connections are taken. */
  cut(): void;
  /** Lets nothing of the server's answers through from here on, or lets it again; connections stay. */
  hold(isHeld: boolean): void;
  close(): Promise<void>;
}

export async function startProxy(port: number): Promise<Passage> {
  const sockets = new Set<net.Socket>();
  let connections = 0;
  let isHeld = false;
  const proxy = net.createServer((near) => {
    connections++;
    const far = net.connect(port, '127.0.0.1');
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.once('close', () => {
        sockets.delete(socket);
        near.destroy();
        far.destroy();
      });
    }
    near.pipe(far);
    far.on('data', (chunk: Buffer) => {
      if (!isHeld) near.write(chunk);
    });
    far.on('end', () => near.end());
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return {
    url: `http://127.0.0.1:${(proxy.address() as net.AddressInfo).port}`,
    connections: () => connections,
    cut: () => {
      for (const socket of sockets) socket.destroy();
    },
    hold: (held) => {
      isHeld = held;
    },
    async close() {
      proxy.close();
      for (const socket of sockets) socket.destroy();
      await once(proxy, 'close');
    },
  };
}
