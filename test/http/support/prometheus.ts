/** Reads Prometheus' text format. */

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly samples: readonly Sample[];
}

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)/gy;

/** @throws where a line breaks the format, or a family is told twice or without its help and type */
export function parseMetrics(text: string): ReadonlyMap<string, Family> {
  const families = new Map<string, Family & { readonly samples: Sample[] }>();
  let help: readonly [string, string] | null = null;
  let family: (Family & { readonly samples: Sample[] }) | null = null;
  if (!text.endsWith('\n')) throw new Error('the text does not end with a line');
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const [, what, name, rest] = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line) ?? [];
    if (what === 'HELP') help = [name!, rest!];
    else if (what === 'TYPE') {
      if (help?.[0] !== name) throw new Error(`${name} has no help`);
      if (families.has(name!)) throw new Error(`${name} is told twice`);
      family = { name: name!, help: help![1], type: rest!, samples: [] };
      families.set(name!, family);
    } else {
      const sample = SAMPLE.exec(line);
      if (sample === null || family === null) throw new Error(`not a sample: ${line}`);
      const suffix = sample[1]!.slice(family.name.length);
      const isOfFamily = sample[1]!.startsWith(family.name) && /^(|_bucket|_sum|_count)$/.test(suffix);
      if (!isOfFamily) throw new Error(`${sample[1]} is no sample of ${family.name}`);
      family.samples.push({ name: sample[1]!, labels: labelsOf(sample[2] ?? '', line), value: Number(sample[3]) });
    }
  }
  return families;
}

function labelsOf(text: string, line: string): Record<string, string> {
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  let end = 0;
  for (let match = LABEL.exec(text); match !== null; match = LABEL.exec(text)) {
    labels[match[1]!] = match[2]!;
    end = LABEL.lastIndex;
  }
  if (end !== text.length) throw new Error(`not labels: ${line}`);
  return labels;
}

/** The value of the one sample that has these labels among its own. */
export function sampleOf(
  families: ReadonlyMap<string, Family>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  const family = families.get(name) ?? families.get(name.replace(/_(bucket|sum|count)$/, ''));
  const fitting = (family?.samples ?? []).filter(
    (sample) =>
      sample.name === name && Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
  );
  if (fitting.length > 1) throw new Error(`${fitting.length} samples of ${name} fit`);
  return fitting[0]?.value;
}

const ABBREVIATED = ['s', 'ms', 'us', 'ns', 'sec', 'b', 'kb', 'mb', 'gb', 'tb', 'pb', 'm', 'h', 'd'];
/** Units that are not the base ones, and which is. */
const UNITS: Readonly<Record<string, string>> = {
  milliseconds: 'seconds',
  microseconds: 'seconds',
  nanoseconds: 'seconds',
  minutes: 'seconds',
  hours: 'seconds',
  days: 'seconds',
  weeks: 'seconds',
  kilobytes: 'bytes',
  megabytes: 'bytes',
  gigabytes: 'bytes',
  bits: 'bytes',
  percent: 'ratio',
};

/** What `promtool check metrics` would say of a family, by the same rules (promlint of prometheus/client_golang). */
export function lint({ name, help, type, samples }: Family): readonly string[] {
  const faults: string[] = [];
  const words = name.split('_');
  if (help.trim() === '') faults.push('no help text');
  if (type === 'counter' && !name.endsWith('_total')) faults.push('counter metrics should have "_total" suffix');
  if (type !== 'counter' && name.endsWith('_total')) faults.push('non-counter metrics should not have "_total" suffix');
  if (type !== 'histogram' && type !== 'summary') {
    if (/_(bucket|count|sum)$/.test(name)) faults.push(`"_${words.at(-1)}" is for histograms and summaries`);
    if (samples.some(({ labels }) => 'le' in labels || 'quantile' in labels)) faults.push('reserved label');
  }
  for (const word of ['gauge', 'counter', 'histogram', 'summary', 'untyped'])
    if (words.includes(word)) faults.push(`metric name should not include type '${word}'`);
  if (name.includes(':')) faults.push("metric names should not contain ':'");
  if (!/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(name)) faults.push('metric names should be written in snake_case');
  for (const word of words) {
    if (ABBREVIATED.includes(word)) faults.push('metric names should not contain abbreviated units');
    if (word in UNITS) faults.push(`use base unit "${UNITS[word]}" instead of "${word}"`);
  }
  for (const { labels } of samples)
    for (const label of Object.keys(labels))
      if (!/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(label)) faults.push(`label ${label} should be written in snake_case`);
  return [...new Set(faults)];
}
