/** What processes of the model decide by: the functions that production code decides by, or one of them changed. */
import { decideClaim, isDeposed } from '../../src/core/claim.ts';
import { appendLanding, changeLanded } from '../../src/core/doubt.ts';
import { donePatch, type EntryCondition, leasePatch } from '../../src/core/entry.ts';
import { closableSegments, completionOf, entriesEnd, planAppend, unseenUpTo } from '../../src/core/log.ts';
import { commitPatch, nextMoveStep, pendingEntry, verdictOf, verdictPatch } from '../../src/core/move.ts';
import { decideDead, decideScan, mustBeChecked } from '../../src/core/scan.ts';

export const PRODUCTION = {
  decideClaim,
  isDeposed,
  leasePatch,
  donePatch,
  /** The condition of an ack. */
  ackOf: (leaseId: string): { readonly expect: EntryCondition; readonly careless: boolean } => ({
    expect: { leaseId },
    careless: false,
  }),
  pendingEntry,
  commitPatch,
  verdictOf,
  verdictPatch,
  decideScan,
  decideDead,
  mustBeChecked,
  planAppend,
  entriesEnd,
  completionOf,
  closableSegments,
  unseenUpTo,
  appendLanding,
  changeLanded,
  /** Whether an answer that was lost is waited for. */
  repeatsUnknown: true,
  /** Whether a segment's header outlives its entries. */
  keepsHeaders: true,
  /** Ids of a log at the most: where an exploration ends. */
  mostIds: 8,
};
export type Decisions = typeof PRODUCTION;

/** Wrong ones; the exploration of each scenario named must find what they break. */
export const VARIANTS: Readonly<
  Record<string, { readonly note: string; readonly scenario: string; readonly wrong: Partial<Decisions> }>
> = {
  'pending-is-ready': {
    note: 'a pending entry is handed out before its move is decided on',
    scenario: 'log',
    wrong: {
      decideClaim: (entry, context) => (entry.status === 'pending' ? { kind: 'claim' } : decideClaim(entry, context)),
    },
  },
  'append-then-mark': {
    note: 'a move appends an entry that is ready at once, and marks its origin afterwards',
    scenario: 'log',
    wrong: { pendingEntry: (origin, at, changes) => ({ ...pendingEntry(origin, at, changes), status: 'ready' }) },
  },
  'ack-without-fence': {
    note: 'an ack is written over whatever stands there',
    scenario: 'log',
    wrong: { ackOf: (leaseId) => ({ expect: { leaseId }, careless: true }) },
  },
  'unknown-is-failed': {
    note: 'an append whose answer was lost is made again elsewhere',
    scenario: 'log',
    wrong: { repeatsUnknown: false },
  },
  'append-by-others': {
    note: 'whatever stands where an append in doubt was to go is taken for its own',
    scenario: 'writers',
    wrong: { appendLanding: (entries, _id, rows) => (rows.length < entries.length ? 'unclear' : 'landed') },
  },
  'append-refused': {
    note: 'an append in doubt whose repetition was refused is taken for refused',
    scenario: 'log',
    wrong: { appendLanding: () => 'refused' },
  },
  'change-by-others': {
    note: 'a change in doubt whose repetition was refused is taken for carried out',
    scenario: 'log',
    wrong: { changeLanded: () => true },
  },
  'completion-passes-open': {
    note: 'the completion cursor passes what is not settled',
    scenario: 'log',
    wrong: { completionOf: (_open, seen) => seen },
  },
  'pass-before-ready': {
    note: 'a moved entry is passed though its destination may be pending',
    scenario: 'across',
    wrong: {
      decideScan: (entry, settings, now) =>
        entry.status === 'moved' ? { kind: 'settled' } : decideScan(entry, settings, now),
    },
  },
  'forgets-moved': {
    note: 'who takes a log over does not look at moved entries',
    scenario: 'across',
    wrong: { mustBeChecked: (entry) => entry.status !== 'moved' && mustBeChecked(entry) },
  },
  'any-destination': {
    note: 'a pending entry is ready where its origin moved, wherever to',
    scenario: 'across',
    wrong: {
      verdictOf: (move, commit) =>
        commit.applied || commit.row?.status === 'moved' ? 'mark-ready' : verdictOf(move, commit),
    },
  },
  'refused-commit-counts': {
    note: 'a pending entry is ready though the commit on its origin was refused',
    scenario: 'across',
    wrong: {
      verdictOf: (move, commit) =>
        !commit.applied && nextMoveStep(move, commit.row) === 'mark-void' && commit.row?.status === 'done'
          ? 'mark-ready'
          : verdictOf(move, commit),
    },
  },
  'gone-is-ready': {
    note: 'a pending entry is ready where its origin is gone',
    scenario: 'segments',
    wrong: {
      verdictOf: (move, commit) => (!commit.applied && commit.row === null ? 'mark-ready' : verdictOf(move, commit)),
    },
  },
  'moved-is-void': {
    note: 'a pending entry that somebody else committed is void',
    scenario: 'across',
    wrong: { verdictOf: (_move, commit) => (commit.applied ? 'mark-ready' : 'mark-void') },
  },
  'closes-open': {
    note: 'a segment is closed in which something is open',
    scenario: 'segments',
    wrong: { closableSegments: (completion, seen, _open, size) => closableSegments(completion, seen, [], size) },
  },
  'trim-forgets-next-id': {
    note: 'trimming a segment deletes its header as well',
    scenario: 'segments',
    wrong: { keepsHeaders: false },
  },
  'seal-is-full': {
    note: 'a sealed segment is read up to its end, as if entries stood there',
    scenario: 'sealing',
    wrong: { entriesEnd: (header) => header.nextId },
  },
  'unseen-claims': {
    note: 'what a claim handed out that is not known here is not taken in',
    scenario: 'terms',
    wrong: { unseenUpTo: (_scan, _seen, _found) => null },
  },
  'term-not-checked': {
    note: 'who was replaced goes on claiming',
    scenario: 'terms',
    wrong: { isDeposed: () => false },
  },
};
