/** The rules of monitoring/alerts.yml, against what a running server tells, and the book that they lead to. */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Tree } from '@lezer/common';
import { parser } from '@prometheus-io/lezer-promql';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { type Family, parseMetrics, type Sample } from '../http/support/prometheus.ts';
import { startServer } from '../http/support/server.ts';

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly description: string; readonly runbook_url: string };
}

const root = resolve(import.meta.dirname, '../..');
const file = parse(await readFile(join(root, 'monitoring/alerts.yml'), 'utf8')) as {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
};
const rules = file.groups.flatMap((group) => group.rules);
const operations = await readFile(join(root, 'docs/operations.md'), 'utf8');

/** What Prometheus itself adds to every scrape: a metric, and labels of all. */
const OF_PROMETHEUS = ['up'];
const OF_SCRAPE = ['job', 'instance'];

/** The texts of all nodes of a kind in an expression. */
function texts(tree: Tree, expression: string, kind: string): string[] {
  const found: string[] = [];
  tree.iterate({
    enter: (node) => {
      if (node.name === kind) found.push(expression.slice(node.from, node.to));
    },
  });
  return found;
}

const metricsIn = (expression: string): string[] => texts(parser.parse(expression), expression, 'Identifier');

/** Each selector of an expression: its metric, and the labels that must be equal to something. */
const selectorsIn = (
  expression: string,
): readonly { readonly name: string; readonly equal: Record<string, string> }[] =>
  texts(parser.parse(expression), expression, 'VectorSelector').map((selector) => ({
    name: /^[a-z_]+/.exec(selector)![0],
    equal: Object.fromEntries(
      [...selector.matchAll(/([a-z_]+)="([^"]*)"/g)].flatMap(([, label, value]) =>
        OF_SCRAPE.includes(label!) ? [] : [[label!, value!]],
      ),
    ),
  }));

/** Anchors as GitHub makes them of headings. */
const anchors = new Set(
  [...operations.matchAll(/^#+ (.+)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  ),
);

let families: ReadonlyMap<string, Family>;
let samples: readonly Sample[];
beforeAll(async () => {
  const server = await startServer({ processMetrics: true, logLinesDropped: () => 0 }, (app) => {
    app.get('/broken', { schema: { hide: true }, config: { access: 'open' } }, () => {
      throw new Error('unforeseen');
    });
  });
  await server.expectAlive();
  await server.get('/broken');
  families = parseMetrics((await server.get('/metrics')).text);
  samples = [...families.values()].flatMap((family) => family.samples);
  await server.close();
});

test('there are alerts, each once', () => {
  expect(rules.length).toBeGreaterThan(15);
  expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
});

describe.each(rules.map((rule) => [rule.alert, rule] as const))('%s', (_name, rule) => {
  test('is PromQL', () => {
    expect(texts(parser.parse(rule.expr), rule.expr, '⚠')).toEqual([]);
    expect(metricsIn(rule.expr).length).toBeGreaterThan(0);
  });

  test('asks for what a server tells, by labels that it has', () => {
    const known = [...families.values()].flatMap(({ name, type }) =>
      type === 'histogram' ? ['_bucket', '_sum', '_count'].map((suffix) => name + suffix) : [name],
    );
    const missing = metricsIn(rule.expr).filter((name) => ![...known, ...OF_PROMETHEUS].includes(name));
    expect(missing).toEqual([]);
    for (const { name, equal } of selectorsIn(rule.expr)) {
      const wanted = Object.entries(equal);
      const fits = (sample: Sample) =>
        sample.name === name && wanted.every(([label, value]) => sample.labels[label] === value);
      if (wanted.length > 0) expect(samples.some(fits), `${name} ${JSON.stringify(equal)}`).toBe(true);
    }
    const labels = new Set(samples.flatMap((sample) => Object.keys(sample.labels)));
    for (const label of texts(parser.parse(rule.expr), rule.expr, 'LabelName')) {
      expect([...labels, ...OF_SCRAPE]).toContain(label);
    }
  });

  test('says what is the matter, how bad it is, and where to read on', () => {
    expect(rule.alert).toMatch(/^Ebbmark([A-Z][a-z]+)+$/);
    expect(['critical', 'warning', 'info']).toContain(rule.labels.severity);
    expect(rule.annotations.summary).toMatch(/\S/);
    expect(rule.annotations.description).toMatch(/\.$/);
    const grouped = texts(parser.parse(rule.expr), rule.expr, 'GroupingLabels');
    const said = `${rule.annotations.summary} ${rule.annotations.description}`;
    for (const [, label] of said.matchAll(/\$labels\.(\w+)/g)) {
      for (const labels of grouped) expect(labels, 'what is grouped away has no value').toContain(label);
    }
    if (rule.for !== undefined) expect(rule.for).toMatch(/^\d+[smh]$/);
    const [path, anchor] = rule.annotations.runbook_url.split('#');
    expect(path).toBe('docs/operations.md');
    expect(anchor).toBe(rule.alert.toLowerCase());
    expect(anchors).toContain(anchor);
  });
});

test('the book has no entry of an alert that there is not', () => {
  const entries = [...operations.matchAll(/^#+ (Ebbmark\w+)$/gm)].map((match) => match[1]);
  expect(entries.sort()).toEqual(rules.map(({ alert }) => alert).sort());
});

test('what is wrong with an expression is found', () => {
  expect(texts(parser.parse('rate(a[5m) > 1'), 'rate(a[5m) > 1', '⚠').length).toBeGreaterThan(0);
  expect(selectorsIn('a_total{b="c", d!="e", job="x"} > 1')).toEqual([{ name: 'a_total', equal: { b: 'c' } }]);
  expect(metricsIn('sum by (job) (rate(a_total{b="c"}[5m])) / max(d) > 1')).toEqual(['a_total', 'd']);
});
