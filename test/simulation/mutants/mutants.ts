/**
 * Small wrong changes to production code, each of which the simulator has to catch. README.md, in this folder, says how
 * to write one, and what to do where the code they name has changed.
 */
import type { Era, Profile } from '../scenario.ts';

/** A change of one place. */
export interface Edit {
  readonly file: string;
  /** Stands exactly once in the file, however it is broken into lines. */
  readonly find: string;
  readonly replace: string;
}

export interface Mutant {
  readonly name: string;
  /** What is wrong with it. */
  readonly note: string;
  /** It is caught by one of the seeds 1 to this. */
  readonly seeds: number;
  /** Only in simulations of this kind, where it takes that trouble to be caught. */
  readonly profile?: Profile;
  /** Seeds as they were drawn once, where those of now take too long to catch it. */
  readonly era?: Era;
  readonly edits: readonly Edit[];
}

export const MUTANTS: readonly Mutant[] = [
  // ── appends and unknown outcomes ──────────────────────────────────────────────────────────────────────────────
  {
    name: 'unknown-is-failed',
    note: 'an outcome that is not known is taken for a failure',
    seeds: 40,
    profile: 'unknown',
    edits: [
      {
        file: 'src/queue/outcomes.ts',
        find: "if (outcome.kind !== 'unknown') return",
        replace:
          "if (outcome.kind === 'unknown') return { outcome: { kind: 'conflict', rows: [], header: null } as never, doubted: false }; if (outcome.kind !== 'unknown') return",
      },
    ],
  },
  {
    name: 'unknown-is-applied',
    note: 'an outcome that is not known is taken for a success',
    seeds: 40,
    profile: 'unknown',
    edits: [
      {
        file: 'src/queue/outcomes.ts',
        find: "if (outcome.kind !== 'unknown') return",
        replace:
          "if (outcome.kind === 'unknown') return { outcome: { kind: 'applied' } as never, doubted: false }; if (outcome.kind !== 'unknown') return",
      },
    ],
  },
  {
    name: 'append-by-others',
    note: "whatever stands where an append in doubt was to go is taken for that append's",
    seeds: 400,
    profile: 'all',
    edits: [
      {
        file: 'src/core/doubt.ts',
        find: "if (!areOurs) return 'refused';",
        replace: '',
      },
    ],
  },
  {
    name: 'activity-after-answer',
    note: 'an enqueue is acknowledged before its activity row is written',
    seeds: 100,
    profile: 'crashes',
    edits: [
      {
        file: 'src/queue/enqueue.ts',
        find: 'if (recorded !== null) await recorded; await this.#engine.activity.confirm(log);',
        replace: '',
      },
    ],
  },
  {
    name: 'move-without-activity',
    note: 'a move commits while the activity row of its destination is not written',
    seeds: 100,
    edits: [
      {
        file: 'src/queue/move.ts',
        find: 'Promise.all([dest.append(entries), activity.ensure(dest)]);',
        replace: 'Promise.all([dest.append(entries)]);',
      },
      {
        file: 'src/queue/move.ts',
        find: 'dest.addOnItsWay(id); await activity.confirm(dest);',
        replace: 'dest.addOnItsWay(id);',
      },
    ],
  },
  {
    name: 'period-not-carried-over',
    note: 'a period of the activity index is deleted, and what is active in it is not recorded in the next',
    seeds: 100,
    profile: 'hours',
    edits: [
      {
        file: 'src/scheduler/activity.ts',
        find: 'if (isStillNeeded(log)) await this.confirm(log);',
        replace: '',
      },
    ],
  },
  // ── claims ────────────────────────────────────────────────────────────────────────────────────────────────────
  {
    name: 'claim-unconditional',
    note: 'a claim whose condition did not hold hands its tasks out all the same',
    seeds: 60,
    edits: [
      {
        file: 'src/queue/claim.ts',
        find: "if (outcome.kind === 'conflict') {",
        replace: "if (outcome.kind === ('never' as string)) {",
      },
    ],
  },
  {
    name: 'cursor-before-claim',
    note: 'the scan cursor moves on before the claim is answered',
    seeds: 100,
    edits: [
      {
        file: 'src/queue/claim.ts',
        find: 'const outcome = await changeDefinitely(store, env, {',
        replace: 'log.scan = to; const outcome = await changeDefinitely(store, env, {',
      },
    ],
  },
  {
    name: 'pending-is-ready',
    note: 'a pending entry is handed out, whether its move happened or not',
    seeds: 60,
    edits: [
      {
        file: 'src/core/claim.ts',
        find: "if (entry.status === 'pending') return { kind: 'resolve' };",
        replace: "if (entry.status === 'pending') return { kind: 'claim' };",
      },
      {
        file: 'src/queue/claim.ts',
        find: "if (await this.#finishMoves(log, entries)) return 'again';",
        replace: '',
      },
    ],
  },
  {
    name: 'term-not-checked',
    note: 'a server that was replaced goes on handing out tasks: it looks neither at its lease, nor at the rows, nor at the term',
    seeds: 60,
    profile: 'pauses',
    edits: [
      {
        file: 'src/scheduler/holdings.ts',
        find: 'if (this.#isSure()) return; for (const shard of this.held) this.#lose(shard);',
        replace: '',
      },
      {
        file: 'src/scheduler/holdings.ts',
        find: 'if (row?.holder !== this.#self.id || row.term !== term) this.#lose(shard);',
        replace: '',
      },
      {
        file: 'src/queue/session.ts',
        find: 'mayClaim: (tenure) => tenure.serves && this.holdings.holds(tenure),',
        replace: 'mayClaim: (tenure) => tenure.serves,',
      },
      {
        file: 'src/core/claim.ts',
        find: '=> found > own',
        replace: '=> found > own && found < 0',
      },
    ],
  },
  {
    name: 'unseen-claims',
    note: 'what a claim in doubt handed out after all is not taken in',
    seeds: 150,
    profile: 'crashes',
    edits: [
      {
        file: 'src/core/log.ts',
        find: 'found > scan ? { from: seen, to: found } : null',
        replace: 'found > scan ? { from: found, to: found } : null',
      },
    ],
  },
  {
    name: 'duplicates-handed-out',
    note: 'an entry whose message id belongs to another task is handed out',
    seeds: 400,
    profile: 'crashes',
    edits: [
      {
        file: 'src/core/claim.ts',
        find: 'if (isOthers && (entry.supersedes !== owner.uid || isLive(owner.status))) {',
        replace: "if (isOthers && owner.uid === '') {",
      },
      {
        file: 'src/core/claim.ts',
        find: "if (isOthers) return { kind: 'own', supersedes: owner.uid };",
        replace: "if (isOthers) return { kind: 'claim' };",
      },
    ],
  },
  // ── settlements ───────────────────────────────────────────────────────────────────────────────────────────────
  {
    name: 'ack-without-fence',
    note: 'an ack is written over whatever stands there',
    seeds: 40,
    edits: [
      {
        file: 'src/queue/settle.ts',
        find: 'changes.push({ id: item.id, expect: { leaseId: item.leaseId }, set });',
        replace:
          'const head = (await readHeadsByIds(this.#engine.store, log.address, [item.id])).get(item.id); changes.push({ id: item.id, expect: head ? { uid: head.uid, version: head.version } : { leaseId: item.leaseId }, set });',
      },
    ],
  },
  {
    name: 'stale-ack-answered-ok',
    note: 'an ack that came too late is answered as if it had counted',
    seeds: 40,
    edits: [
      {
        file: 'src/queue/settle.ts',
        find: "const good = answer.applied || (answer.row?.status === 'done' && answer.row.leaseId === item.leaseId);",
        replace: 'const good = true;',
      },
    ],
  },
  {
    name: 'extension-without-version',
    note: 'an extension is not fenced by the version that was read: a late one undoes a later one',
    seeds: 250,
    edits: [
      {
        file: 'src/queue/settle.ts',
        find: 'changes.push({ id: item.id, expect: { uid: head.uid, version: head.version }, set });',
        replace: 'changes.push({ id: item.id, expect: { leaseId: item.leaseId }, set });',
      },
    ],
  },
  {
    name: 'release-counts',
    note: 'a release counts as an attempt',
    seeds: 60,
    edits: [
      {
        file: 'src/queue/settle.ts',
        find: "attempt: entry.attempt, dueAt: null, outcome: 'released',",
        replace: "attempt: entry.attempt + 1, dueAt: null, outcome: 'released',",
      },
    ],
  },
  {
    name: 'attempt-not-counted',
    note: 'a failed delivery does not count as an attempt',
    seeds: 40,
    edits: [
      { file: 'src/core/scan.ts', find: 'const attempt = entry.attempt + 1;', replace: 'const { attempt } = entry;' },
    ],
  },
  {
    name: 'dedup-in-memory',
    note: 'which message id belongs to which task is known in memory only',
    seeds: 100,
    profile: 'crashes',
    edits: [
      {
        file: 'src/queue/messages.ts',
        find: 'read(topic: string, keys: readonly string[]): Promise<ReadonlyMap<string, MessageRow>> {',
        replace:
          "readonly #memory = new Map<string, MessageRow>(); async read(topic: string, keys: readonly string[]): Promise<ReadonlyMap<string, MessageRow>> { return new Map(keys.flatMap((key) => { const row = this.#memory.get([topic, key].join('/')); return row === undefined ? [] : [[key, row] as const]; }));",
      },
      {
        file: 'src/queue/messages.ts',
        find: 'const results = new Map<MessageWrite, MessageResult>();',
        replace:
          "if (bucket >= 0) return writes.map(({ row, expect }) => { const key = [topic, row.key].join('/'); const found = this.#memory.get(key) ?? null; if (!meetsMessage(found, expect)) return found ?? 'absent'; this.#memory.set(key, row); return null; }); const results = new Map<MessageWrite, MessageResult>();",
      },
    ],
  },
  // ── moves ─────────────────────────────────────────────────────────────────────────────────────────────────────
  {
    name: 'refused-commit-counts',
    note: 'a move whose commit was refused is carried out all the same',
    seeds: 100,
    edits: [
      {
        file: 'src/core/move.ts',
        find: "return step === 'commit' ? 'mark-void' : step;",
        replace: "return 'mark-ready';",
      },
    ],
  },
  {
    name: 'any-destination',
    note: 'a pending entry is ready where its origin moved, wherever to',
    seeds: 100,
    edits: [
      {
        file: 'src/core/move.ts',
        find: "samePlace(origin.dest, move.place) ? 'mark-ready' : 'mark-void'",
        replace: "'mark-ready'",
      },
    ],
  },
  {
    name: 'passed-before-ready',
    note: 'the scanner passes a moved entry before its destination is ready',
    seeds: 400,
    profile: 'crashes',
    edits: [
      {
        file: 'src/scheduler/scanner.ts',
        find: "else if (decision.kind === 'moved') { await this.#mover.ensureArrived(head);",
        replace: "else if (decision.kind === 'moved') {",
      },
    ],
  },
  {
    name: 'settled-as-once-found',
    note: 'the row of a task that has ended is taken as it was found, not as it stands by then',
    seeds: 1_500,
    profile: 'unknown',
    edits: [
      {
        file: 'src/queue/enqueue.ts',
        find: '[{ task, place, status, at: head.updatedAt }]); }',
        replace:
          '[{ task, place, status, at: head.updatedAt }]); return { ...row, status, settledAt: head.updatedAt }; }',
      },
    ],
  },
  {
    name: 'requeue-whatever-happened',
    note: 'a lease that was extended since the scanner looked at it is taken for stalled',
    seeds: 200,
    profile: 'pauses',
    edits: [
      {
        file: 'src/scheduler/scanner.ts',
        find: '(entry) => requeues.get(entry.id)?.version === entry.version',
        replace: "(entry) => requeues.has(entry.id) && entry.status === 'leased'",
      },
    ],
  },
  {
    name: 'delayed-early',
    note: 'delayed tasks are moved a while before they are due',
    seeds: 40,
    edits: [
      {
        file: 'src/scheduler/due-times.ts',
        find: 'Math.ceil(dueAt / this.#tickMs)',
        replace: 'Math.floor(dueAt / this.#tickMs) - 8',
      },
    ],
  },
  // ── cursors and trimming ──────────────────────────────────────────────────────────────────────────────────────
  {
    name: 'completion-passes-open',
    note: 'the completion cursor passes entries that are not settled',
    seeds: 60,
    edits: [
      {
        file: 'src/core/log.ts',
        find: 'Math.min(firstOpen ?? seen, seen)',
        replace: 'seen',
      },
    ],
  },
  {
    name: 'checkpoint-ahead',
    note: 'the checkpoint says that all that was handed out is settled',
    seeds: 60,
    profile: 'crashes',
    edits: [
      {
        file: 'src/scheduler/scanner.ts',
        find: 'const checkpoint = { scan, completion, trimmed };',
        replace: 'const checkpoint = { scan, completion: scan, trimmed };',
      },
    ],
  },
  {
    name: 'trim-forgets-next-id',
    note: 'trimming a full segment deletes its header along with its entries',
    seeds: 60,
    profile: 'hours',
    edits: [
      {
        file: 'src/scheduler/scanner.ts',
        find: 'log.trimmed = at = end;',
        replace:
          'if (end === segmentEnd(segment, size)) await store.dropSegment(log.address, segment, end); log.trimmed = at = end;',
      },
    ],
  },
  {
    name: 'long-lease-blocks',
    note: 'a pass ends at the first lease that still runs',
    seeds: 400,
    profile: 'calm',
    edits: [
      {
        file: 'src/scheduler/scanner.ts',
        find: 'if (open.until <= now) ids.push(id);',
        replace: 'if (open.until <= now) ids.push(id); else break;',
      },
    ],
  },
  // ── order, fairness, limits ───────────────────────────────────────────────────────────────────────────────────
  {
    name: 'lowest-first',
    note: 'a lease takes the lowest tier of a topic first',
    seeds: 100,
    profile: 'calm',
    edits: [
      {
        file: 'src/scheduler/ready-ring.ts',
        find: 'TIERS - 1 - (nth - buckets)',
        replace: 'nth - buckets',
      },
    ],
  },
  {
    name: 'served-stays-first',
    note: 'a topic that was served stays at the front of the ring',
    seeds: 300,
    profile: 'calm',
    edits: [
      {
        file: 'src/scheduler/rounds.ts',
        find: 'this.delete(topic.name); topic.turnsTaken += turns;',
        replace: 'topic.turnsTaken += turns;',
      },
    ],
  },
  {
    name: 'turns-without-end',
    note: 'a topic that weighs more than others never comes to the end of its turns',
    seeds: 300,
    profile: 'calm',
    edits: [
      {
        file: 'src/scheduler/rounds.ts',
        find: 'if (topic.turnsTaken >= topic.settings.weight) topic.turnsTaken = 0;',
        replace: 'if (topic.settings.weight === 1) topic.turnsTaken = 0;',
      },
    ],
  },
  {
    name: 'in-flight-from-zero',
    note: 'what is in flight is not counted anew at a start',
    seeds: 200,
    profile: 'crashes',
    edits: [{ file: 'src/scheduler/recover.ts', find: 'openEntry(head, true,', replace: 'openEntry(head, false,' }],
  },
  {
    name: 'pause-ignored',
    note: 'a paused topic hands out tasks',
    seeds: 100,
    edits: [
      {
        file: 'src/core/limits.ts',
        find: 'if (settings.paused) return { allowed: 0, nextAt: null };',
        replace: '',
      },
    ],
  },
  {
    name: 'interval-ignored',
    note: 'leases of a topic follow each other as they come',
    seeds: 100,
    edits: [
      {
        file: 'src/core/limits.ts',
        find: 'if (state.lastLeaseAt + settings.minIntervalMs > now) closedUntil(state.lastLeaseAt + settings.minIntervalMs);',
        replace: '',
      },
    ],
  },
  {
    name: 'cooldown-from-lease',
    note: 'a cooldown counts from the lease on, not from the settlement',
    seeds: 200,
    edits: [
      {
        file: 'src/core/limits.ts',
        find: 'state.lastSettledAt + settings.cooldownMs > now',
        replace: 'state.lastLeaseAt + settings.cooldownMs > now',
      },
    ],
  },
  {
    name: 'rate-by-call',
    note: 'a lease takes one token of the rate, however many tasks it gets',
    seeds: 200,
    edits: [
      {
        file: 'src/core/limits.ts',
        find: 'tokensAt(state, settings.rate, at) - count : 0',
        replace: 'tokensAt(state, settings.rate, at) - 1 : 0',
      },
    ],
  },
  {
    name: 'rate-full-after-start',
    note: 'after a start, or a take-over, the bucket of a rate is full',
    seeds: 400,
    profile: 'crashes',
    edits: [
      {
        file: 'src/queue/topics.ts',
        find: 'lastSettledAt: now, tokens: 0, refilledAt: now }',
        replace: 'lastSettledAt: now, tokens: this.settings.rate?.burst ?? 0, refilledAt: now }',
      },
    ],
  },
  {
    name: 'interval-forgotten-at-start',
    note: 'when the last lease was handed out is not looked for at a take-over',
    seeds: 900,
    profile: 'zombies',
    era: 'bulk',
    edits: [
      {
        file: 'src/queue/topics.ts',
        find: 'lastLeaseAt: this.#lastLeaseAt, lastSettledAt',
        replace: 'lastLeaseAt: Number.NEGATIVE_INFINITY, lastSettledAt',
      },
      {
        file: 'src/scheduler/recover.ts',
        find: 'if (head.leasedAt !== null) topic.hadLease(monotonicAt(engine.env, head.leasedAt));',
        replace: '',
      },
      {
        file: 'src/queue/topics.ts',
        find: 'if (wasLeased) topic?.hadLease(monotonicAt(this.#env, tenure.beganAt));',
        replace: '',
      },
    ],
  },
  {
    name: 'claims-under-way-ignored',
    note: 'the gate of a topic opens while a claim is under way whose tasks are not counted yet',
    seeds: 200,
    edits: [
      {
        file: 'src/queue/topics.ts',
        find: 'if (this.claiming) return { allowed: 0, nextAt: null };',
        replace: '',
      },
    ],
  },
  {
    name: 'view-never-left',
    note: 'who was served stays first for leases that ask for some topics',
    seeds: 2_000,
    edits: [
      {
        file: 'src/scheduler/ready-topics.ts',
        find: 'if (!rounds.has(name)) continue; this.#places--; rounds.delete(name);',
        replace: '',
      },
    ],
  },
  {
    name: 'view-never-joined',
    note: 'what comes up later is not seen by leases that ask for some topics',
    seeds: 100,
    edits: [
      {
        file: 'src/scheduler/ready-topics.ts',
        find: 'for (const { tiers, rounds } of view.parts.values()) this.#place(topic, tiers, rounds);',
        replace: '',
      },
    ],
  },
  {
    name: 'topic-share-ignored',
    note: 'a lease call takes more of a topic than it asked for',
    seeds: 100,
    edits: [
      {
        file: 'src/scheduler/ready-ring.ts',
        find: 'Math.min(mayHave, topic.gate(this.#clock).allowed) - taken',
        replace: 'Math.max(mayHave, topic.gate(this.#clock).allowed) - taken',
      },
    ],
  },
  // ── topics that are folded ────────────────────────────────────────────────────────────────────────────────────
  {
    name: 'folded-cursors-lost',
    note: 'a topic that was folded begins at its first entry again',
    seeds: 60,
    profile: 'hours',
    edits: [
      {
        file: 'src/queue/log.ts',
        find: 'log.scan = log.completion = log.trimmed = rest.cursor;',
        replace: '',
      },
    ],
  },
  {
    name: 'folded-count-lost',
    note: 'a topic that was folded forgets how many tasks wait in it',
    seeds: 60,
    profile: 'hours',
    edits: [{ file: 'src/queue/log.ts', find: 'log.#ready = rest.ready;', replace: 'log.#ready = 0;' }],
  },
  // ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────
  {
    name: 'fired-before-enqueued',
    note: 'a schedule notes that it has fired before its task is enqueued',
    seeds: 40,
    profile: 'schedules',
    edits: [
      {
        file: 'src/queue/schedules.ts',
        find: 'const results = await this.#enqueue(row, due.times); const advanced = await this.#advance(row, due, results);',
        replace:
          "const advanced = await this.#advance(row, due, due.times.map(() => ({ id: 'x', deduplicated: false }))); await this.#enqueue(row, due.times);",
      },
    ],
  },
  {
    name: 'firing-id-without-time',
    note: 'all firings of a schedule have one message id',
    seeds: 40,
    profile: 'schedules',
    edits: [
      {
        file: 'src/queue/schedules.ts',
        find: 'messageId: firingId(row, at),',
        replace: 'messageId: firingId(row, 0),',
      },
    ],
  },
  {
    name: 'firing-window-of-topic',
    note: 'the message id of a firing is kept for no longer than its topic keeps others',
    seeds: 60,
    profile: 'schedules',
    edits: [
      {
        file: 'src/queue/messages.ts',
        find: 'Math.max(dedupWindowMs, FIRING_WINDOW_MS)',
        replace: 'dedupWindowMs',
      },
    ],
  },
  {
    name: 'fired-up-to-now',
    note: 'a schedule that fires late takes all up to now for fired',
    seeds: 40,
    profile: 'schedules',
    edits: [
      {
        file: 'src/queue/schedules.ts',
        find: 'firedUpTo: due.times.at(-1)!,',
        replace: 'firedUpTo: this.#engine.env.now(),',
      },
    ],
  },
  {
    name: 'change-forgets-firings',
    note: 'a schedule that is changed takes what has fired since its making for due',
    seeds: 40,
    profile: 'schedules',
    edits: [
      {
        file: 'src/queue/schedules.ts',
        find: 'keepsTimes ? row.firedUpTo',
        replace: 'keepsTimes ? row.createdAt',
      },
    ],
  },
];
