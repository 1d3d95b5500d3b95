/**
 * Calls that are tasks: published by the client, answered by a subscriber, the result awaited. Over HTTP caller, server
 * and subscriber are a process each; embedded all are in one. Beside them the same handler, called over plain HTTP.
 */
import { Child } from '../child.ts';
import type { BenchOptions } from '../options.ts';
import type { RequestReplyOrder, RequestReplyReport } from '../request-reply.ts';
import { inRounds } from '../rounds.ts';
import type { ServerOrder, ServerReport } from '../server.ts';
import type { SqlitePlace } from '../sqlite.ts';
import { type Row, rowBeside } from '../table.ts';

const FLOOR = 'plain HTTP';
const SUBJECTS = ['over HTTP', 'embedded'] as const;
const CALLERS = [1, 32] as const;
/** Subscribers' slots: no call waits for a free one. */
const CONCURRENCY = Math.max(...CALLERS);

const FIGURES = [
  { name: 'rate', unit: 'round trips/s', of: 'perSecond' },
  { name: 'p50', unit: 'ms', of: 'p50' },
  { name: 'p99', unit: 'ms', of: 'p99' },
] as const;

type Party = Child<RequestReplyOrder, RequestReplyReport>;

export async function requestReply(place: SqlitePlace, options: BenchOptions): Promise<readonly Row[]> {
  const server: Child<ServerOrder, ServerReport> = new Child('server.ts');
  const parties: Party[] = [];
  const join = async (queue: { readonly origin: string } | { readonly store: string }): Promise<Party> => {
    const party: Party = new Child('request-reply.ts');
    parties.push(party);
    await party.ask({ kind: 'connect', queue });
    return party;
  };
  try {
    const { origin } = await server.ask({ kind: 'open', store: place.fresh() });
    const caller = await join({ origin });
    const answerer = await join({ origin });
    const embedded = await join({ store: place.fresh() });
    for (const party of [answerer, embedded]) await party.ask({ kind: 'answer', concurrency: CONCURRENCY });
    const plain = await answerer.ask({ kind: 'listen' });
    const rows: Row[] = [];
    for (const callers of CALLERS) {
      const order = { callers, durationMs: options.quick ? 400 : 2_000 };
      const rounds = await inRounds(
        {
          [FLOOR]: () => caller.ask({ kind: 'post', origin: plain.origin, ...order }),
          'over HTTP': () => caller.ask({ kind: 'request', ...order }),
          embedded: () => embedded.ask({ kind: 'request', ...order }),
        },
        options.rounds,
        (text) => options.progress(`request and reply, ${callers} at a time, ${text}`),
      );
      rows.push(...rowsOf(callers, rounds));
    }
    return rows;
  } finally {
    await Promise.all([server, ...parties].map((child) => child.stop()));
  }
}

function rowsOf(callers: number, rounds: ReadonlyMap<string, readonly RequestReplyReport[]>): readonly Row[] {
  return SUBJECTS.flatMap((subject) =>
    FIGURES.map(({ name, unit, of }) => {
      const values = (series: string) => (rounds.get(series) ?? []).map((report) => report[of]);
      return rowBeside(
        'request-reply',
        `${subject}, ${callers} at a time, ${name}`,
        { unit, values: values(subject) },
        { name: FLOOR, values: values(FLOOR) },
      );
    }),
  );
}
