import { median, ratioOf } from './rounds.ts';

/** One measured figure, and how it is shown: as an aligned table, as JSON, as CSV. */
export interface Row {
  readonly scenario: string;
  readonly metric: string;
  readonly value: number;
  readonly unit: string;
  /** What was measured beside it, and its value in the same unit; null where there is nothing to compare with. */
  readonly floor: { readonly name: string; readonly value: number } | null;
  /** The median of value ÷ floor over the rounds; for times the same, so that lower is better. */
  readonly ratio: number | null;
  readonly target: Target | null;
  readonly reached: boolean | null;
}

/** What the figure has to be: a ratio to the floor, or the value itself. */
export interface Target {
  readonly of: 'ratio' | 'value';
  readonly is: 'at least' | 'at most';
  readonly bound: number;
}

/** What a figure that stands for itself has to be. */
export type ValueTarget = Target & { readonly of: 'value' };

export function meets(target: Target, row: { readonly value: number; readonly ratio: number | null }): boolean {
  const figure = target.of === 'ratio' ? row.ratio : row.value;
  if (figure === null || !Number.isFinite(figure)) return false;
  return target.is === 'at least' ? figure >= target.bound : figure <= target.bound;
}

/** A row of figures, one a round, beside a floor that was measured in the same rounds. */
export function rowBeside(
  scenario: string,
  metric: string,
  subject: { readonly unit: string; readonly values: readonly number[] },
  floor: { readonly name: string; readonly values: readonly number[] },
  target: Target | null = null,
): Row {
  const value = median(subject.values);
  const ratio = ratioOf(subject.values, floor.values);
  return {
    scenario,
    metric,
    value,
    unit: subject.unit,
    floor: { name: floor.name, value: median(floor.values) },
    ratio,
    target,
    reached: target && meets(target, { value, ratio }),
  };
}

/** A row of rates, in tasks a second. */
export const rateRow = (
  scenario: string,
  metric: string,
  subject: readonly number[],
  floor: { readonly name: string; readonly values: readonly number[] },
  target: Target | null,
): Row => rowBeside(scenario, metric, { unit: 'tasks/s', values: subject }, floor, target);

/** A row of a figure that stands for itself. */
export function figure(
  scenario: string,
  metric: string,
  value: number,
  unit: string,
  target: ValueTarget | null = null,
): Row {
  const reached = target && meets(target, { value, ratio: null });
  return { scenario, metric, value, unit, floor: null, ratio: null, target, reached };
}

/** Three significant digits are more than a noisy machine can tell. */
const shown = (value: number): string =>
  value >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));

const targetText = ({ of, is, bound }: Target): string =>
  `${is === 'at least' ? '≥' : '≤'} ${bound}${of === 'ratio' ? ' ×' : ''}`;

const COLUMNS = ['scenario', 'metric', 'value', 'unit', 'floor', 'ratio', 'target', 'reached'] as const;
const TO_THE_RIGHT: ReadonlySet<string> = new Set(['value', 'ratio']);

export function asTable(rows: readonly Row[]): string {
  const lines = rows.map((row) => ({
    scenario: row.scenario,
    metric: row.metric,
    value: shown(row.value),
    unit: row.unit,
    floor: row.floor ? `${row.floor.name}: ${shown(row.floor.value)}` : '–',
    ratio: row.ratio === null ? '–' : row.ratio.toFixed(2),
    target: row.target ? targetText(row.target) : '–',
    reached: row.reached === null ? '–' : row.reached ? 'yes' : 'NO',
  }));
  const widths = COLUMNS.map((column) => Math.max(column.length, ...lines.map((line) => line[column].length)));
  const draw = (cells: Readonly<Record<(typeof COLUMNS)[number], string>>): string =>
    COLUMNS.map((column, i) =>
      TO_THE_RIGHT.has(column) ? cells[column].padStart(widths[i] ?? 0) : cells[column].padEnd(widths[i] ?? 0),
    )
      .join('  ')
      .trimEnd();
  const head = Object.fromEntries(COLUMNS.map((column) => [column, column])) as Record<
    (typeof COLUMNS)[number],
    string
  >;
  return [draw(head), widths.map((width) => '─'.repeat(width)).join('  '), ...lines.map(draw)].join('\n');
}

export const asJson = (rows: readonly Row[], about: Readonly<Record<string, unknown>>): string =>
  JSON.stringify({ ...about, rows }, null, 2);

export function asCsv(rows: readonly Row[]): string {
  const quote = (cell: string | number | boolean | null): string => {
    const text = cell === null ? '' : String(cell);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = rows.map((row) => [
    row.scenario,
    row.metric,
    row.value,
    row.unit,
    row.floor?.name ?? null,
    row.floor?.value ?? null,
    row.ratio,
    row.target ? targetText(row.target) : null,
    row.reached,
  ]);
  const head = ['scenario', 'metric', 'value', 'unit', 'floor', 'floor_value', 'ratio', 'target', 'reached'];
  return [head, ...lines].map((line) => line.map(quote).join(',')).join('\n');
}
