/** `ebbmark audit`: looks a store over, tells what it found, and mends what can be. */
import { existsSync } from 'node:fs';
import { type AuditReport, auditStore, type Finding } from '../audit/audit.ts';
import { type Environment, type Flags, readStoreSettings, type StoreAddress } from '../config.ts';
import { columns, count, safeText } from '../http/text.ts';
import { openStore, type QueueLogger } from '../queue/open.ts';
import { type Store, StoreInUseError, StoreOutdatedError } from '../store/store.ts';
import { CommandError, EXIT, inUseBy, noStore, outdated } from './failure.ts';
import { note, print } from './output.ts';
import { Progress } from './progress.ts';

export type AuditFlags = Flags & { readonly repair?: boolean; readonly json?: boolean; readonly limit: number };

const WARNINGS: QueueLogger = { info() {}, warn: (_fields, message) => note(`Warning: ${message}`), error() {} };

export async function audit(options: AuditFlags, env: Environment): Promise<void> {
  const { repair = false, limit } = options;
  const { address, options: open } = readStoreSettings(options, env);
  if (address.kind === 'sqlite' && !existsSync(address.path)) throw noStore(address);
  const store = await openStore({ ...open, migrate: false, log: WARNINGS }).catch((error) => refuse(error, address));
  const progress = new Progress('rows');
  try {
    const report = await auditStore(store, { repair, limit, progress: (rows) => progress.show(rows) });
    progress.end();
    print(options, report, () => reportText(report, repair));
    if (report.mended < report.found) process.exitCode = EXIT.failed;
  } finally {
    progress.end();
    await store.close();
  }
}

function refuse(error: unknown, address: StoreAddress): Store {
  if (error instanceof StoreInUseError) {
    throw new CommandError(
      `${inUseBy(address, 'file')}\nA file is looked over while nobody works on it: a copy of it at any time (ebbmark backup).`,
    );
  }
  if (error instanceof StoreOutdatedError) throw outdated(error.message, address.text);
  throw error;
}

function reportText(report: AuditReport, repair: boolean): string {
  const { store, segments, entries, messages, rules, found, mended } = report;
  const read = `${count(entries)} entries in ${count(segments)} segments and ${count(messages)} message rows`;
  if (found === 0) return `${store}: nothing found in ${read}.`;
  const heads = ['rule', 'kind', 'found', ...(repair ? ['mended'] : []), 'what it means'];
  const rows = rules.map((rule) => [rule.rule, rule.group, rule.found, ...(repair ? [rule.mended] : []), rule.about]);
  const examples = rules.map((rule) => {
    const more = rule.found - rule.examples.length;
    const lines = rule.examples.map((finding) => `  ${findingText(finding)}`);
    return [`${rule.rule}:`, ...lines, ...(more > 0 ? [`  … and ${count(more)} more (--limit)`] : [])].join('\n');
  });
  const sum = repair ? `${count(found)} found, ${count(mended)} mended` : `${count(found)} found`;
  const hint = repair ? '' : '\nWhat of it can be mended, --repair mends.';
  return [`${store}: ${sum} in ${read}.${hint}`, columns(heads, rows), ...examples].join('\n\n');
}

/** Where it is, what is wrong, and what was done about it. */
function findingText({ topic, tier, id, uid, key, detail, did, left }: Finding): string {
  const where = [
    topic === '' ? '' : safeText(topic) + (tier === null ? '' : `:${tier}`) + (id === null ? '' : ` ${id}`),
    key === null ? '' : safeText(key),
    uid === null ? '' : safeText(uid),
  ];
  const after = did !== null ? ` → ${safeText(did, 300)}` : left !== null ? ` → left: ${safeText(left, 300)}` : '';
  return `${where.filter((part) => part !== '').join('  ')}${topic === '' ? '' : ': '}${safeText(detail, 300)}${after}`;
}
