/** A process of its own that appends to the store at argv[2] and says, a line each, what was acknowledged. */
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { append, entry } from '../conformance/harness.ts';

const store = await openSqliteStore(process.argv[2]!);
process.stdout.write('open\n');
for (let i = 0; ; i += 5) {
  await Promise.all(
    [0, 1, 2, 3, 4].map(async (tier) => {
      const id = await append(store, { topic: 'killed', tier }, [entry(`${i}/${tier}`)]);
      process.stdout.write(`${tier} ${id}\n`);
    }),
  );
}
