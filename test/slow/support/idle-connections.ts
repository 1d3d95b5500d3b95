/** A process that opens connections and asks nothing: `idle-connections.ts PORT CONNECTIONS`. It says what became of them. */
import net from 'node:net';

export interface Idle {
  /** Neither answered nor closed by the server. */
  readonly open: number;
  /** Told that the server is busy, and closed. */
  readonly busy: number;
  /** Told that no request came in time, and closed. */
  readonly late: number;
  /** Closed, or never opened, without a word. */
  readonly dropped: number;
}

const [port, connections] = process.argv.slice(2).map(Number) as [number, number];
const AT_ONCE = 200;
const counts = { open: 0, busy: 0, late: 0, dropped: 0 };

const open = (): Promise<void> =>
  new Promise((settled) => {
    let answer = '';
    let isOpen = false;
    const socket = net.connect(port, '127.0.0.1');
    socket.setEncoding('latin1');
    socket.on('connect', () => {
      isOpen = true;
      counts.open++;
      settled();
    });
    socket.on('data', (text: string) => {
      answer += text;
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      if (isOpen) counts.open--;
      if (answer.startsWith('HTTP/1.1 503 ') && answer.includes('"code":"busy"')) counts.busy++;
      else if (answer.startsWith('HTTP/1.1 408 ')) counts.late++;
      else counts.dropped++;
      settled();
    });
  });

let left = connections;
await Promise.all(
  Array.from({ length: AT_ONCE }, async () => {
    while (left-- > 0) await open();
  }),
);
const tell = (): void => void process.send?.({ ...counts } satisfies Idle);
tell();
setInterval(tell, 250);
process.once('disconnect', () => process.exit());
