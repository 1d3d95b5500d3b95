/** What came of the scenarios, as an aligned table. */
import { faultOf, type Result } from './scenario.ts';

const COUNTS = ['enqueued', 'acknowledged', 'delivered', 'settled', 'lost', 'phantom', 'twice'] as const;

const ofCodes = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .map(([code, count]) => `${count} ${code}`)
    .join(', ') || 'none';

const HEADS = ['what happened', 'took', ...COUNTS, 'retried', 'errors', 'notes'];

const cellsOf = (result: Result): string[] => {
  const { wereThere, wereNot } = result.doubtful;
  const doubtful =
    wereThere + wereNot === 0 ? [] : [`in doubt at first: ${wereThere} tasks were there, ${wereNot} were not`];
  const late = result.late === 0 ? [] : [`${result.late} late acks refused`];
  return [
    result.scenario,
    `${result.seconds} s`,
    ...COUNTS.map((name) => String(result[name])),
    ofCodes(result.retried),
    ofCodes(result.errors),
    [...result.notes, ...late, ...doubtful].join('; '),
  ];
};

/** Columns are aligned, and the whole is a table in Markdown too. */
export function asTable(results: readonly Result[]): string {
  const rows = [HEADS, ...results.map(cellsOf)];
  const widths = HEADS.map((_, at) => Math.max(...rows.map((cells) => cells[at]!.length)));
  const isNumber = (at: number): boolean => at >= 1 && at <= COUNTS.length + 1;
  const draw = (cells: readonly string[]): string => {
    const padded = cells.map((cell, at) => (isNumber(at) ? cell.padStart(widths[at]!) : cell.padEnd(widths[at]!)));
    return `| ${padded.join(' | ')} |`;
  };
  const rule = `|${widths.map((width, at) => `${'-'.repeat(width + 1)}${isNumber(at) ? ':' : '-'}`).join('|')}|`;
  return [draw(HEADS), rule, ...rows.slice(1).map(draw)].join('\n');
}

/** Names what was not kept, a line a scenario. */
export const faultsIn = (results: readonly Result[]): readonly string[] =>
  results.flatMap((result) => {
    const fault = faultOf(result);
    return fault === null ? [] : [`${result.scenario}: ${fault}`];
  });
