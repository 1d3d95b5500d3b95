/** The table of metrics in docs/operations.md is what a server tells. */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { metricsOf } from '../../src/http/metrics.ts';
import { parseMetrics } from '../http/support/prometheus.ts';
import { testQueue } from '../support/queue.ts';

test('lists each metric with its type and its help', async () => {
  const { queue } = await testQueue();
  const families = [...parseMetrics(await metricsOf(queue).read()).values()];
  const rows = families
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, type, help }) => `| \`${name}\` | ${type} | ${help} |`);
  const table = ['| metric | type | what it is |', '| --- | --- | --- |', ...rows].join('\n');
  const operations = await readFile(join(resolve(import.meta.dirname, '../..'), 'docs/operations.md'), 'utf8');
  expect(operations).toContain(table);
});
