/**
 * A schedule: a task at each time of a cron pattern, once, whatever servers die meanwhile. This one fires each second, so
 * that there is something to see; `30 8 * * MON-FRI` in `Europe/Berlin` is one for every day.
 *
 *     npx tsx examples/schedule.ts
 */
import { openQueue } from 'ebbmark';

// In a file, `sqlite:./tasks.db`, or a keyspace, `cassandra://…`, the schedule goes on with the next process that opens it.
const queue = await openQueue({ store: 'sqlite::memory:' });

const schedule = await queue.setSchedule('heartbeat', {
  topic: 'monitor',
  pattern: '* * * * * *',
  timeZone: 'Europe/Berlin',
  payload: { check: 'disk' },
  // Nobody wants to know how the disk was a minute ago.
  ttlMs: 60_000,
});
console.log('its next times:', schedule.next.map((at) => new Date(at).toISOString()).join(', '));

for (let done = 0; done < 3; ) {
  for (const task of await queue.lease({ topics: ['monitor'], max: 10, waitMs: 10_000 })) {
    console.log(`fired for ${task.metadata['ebbmark-fired-for']}:`, task.payload);
    await queue.settle({ ack: [{ leaseId: task.leaseId }] });
    done++;
  }
}

const { fired, missed } = await queue.schedule('heartbeat');
console.log(`fired ${fired} times, missed ${missed}`);
// It would go on. What it has enqueued stays.
await queue.deleteSchedule('heartbeat');
await queue.stop();
