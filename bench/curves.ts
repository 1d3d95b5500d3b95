#!/usr/bin/env node
/**
 * Draws what the scenario `topics` measured: what a task costs, and how long a lease takes, against the number of topics.
 *
 *   npm run bench -- --scenario topics --json > sqlite.json
 *   npm run bench -- --store cassandra --scenario topics --json > cassandra.json
 *   npx tsx bench/curves.ts sqlite.json cassandra.json > docs/many-topics.svg
 */
import { readFileSync } from 'node:fs';
import { init, type SeriesOption } from 'echarts';
import type { Row } from './table.ts';

interface Run {
  readonly store: string;
  readonly rows: readonly Row[];
}

/** What is drawn of a run: points of a number of topics and a value. */
interface Curve {
  readonly name: string;
  readonly points: readonly (readonly [topics: number, value: number])[];
}

const WIDTH = 960;
const HEIGHT = 470;
const COLOURS = { sqlite: ['#1b6ca8', '#63a4d4'], cassandra: ['#b3541e', '#e0975c'] } as const;

/** Rows whose metric is like this, by the number of topics in it. */
function curve(name: string, rows: readonly Row[], metric: RegExp, of: (row: Row) => number): Curve {
  const points = rows.flatMap((row) => {
    const topics = metric.exec(row.metric)?.[1];
    return row.scenario !== 'topics' || topics === undefined ? [] : [[Number(topics), of(row)] as const];
  });
  return { name, points: points.sort(([a], [b]) => a - b) };
}

const microsecondsEach = ({ value }: Row): number => 1e6 / value;

function costs({ store, rows }: Run): readonly Curve[] {
  return [
    curve(`${store}: enqueue`, rows, /^enqueue, (\d+) topics?\b/, microsecondsEach),
    curve(`${store}: lease and ack`, rows, /^drain, (\d+) topics?\b/, microsecondsEach),
  ];
}

function leases({ store, rows }: Run): readonly Curve[] {
  // On Cassandra it is those of a drain that are measured.
  const kind = store === 'sqlite' ? 'lease of one' : 'lease of up to 100 of a drain';
  return [
    curve(`${store}: ${kind}, p50`, rows, /^lease(?! beside).*?, (\d+) topics?\b.*p50$/, ({ value }) => value),
    curve(`${store}: ${kind}, p99`, rows, /^lease(?! beside).*?, (\d+) topics?\b.*p99$/, ({ value }) => value),
  ];
}

function seriesOf(runs: readonly Run[], curves: (run: Run) => readonly Curve[], grid: number): SeriesOption[] {
  return runs.flatMap((run) => {
    const colours = COLOURS[run.store === 'sqlite' ? 'sqlite' : 'cassandra'];
    return curves(run).map(
      ({ name, points }, nth): SeriesOption => ({
        type: 'line',
        name,
        data: points.map(([topics, value]) => [topics, value]),
        xAxisIndex: grid,
        yAxisIndex: grid,
        symbolSize: 7,
        color: colours[nth]!,
        lineStyle: { width: 2, type: nth === 0 ? 'solid' : 'dashed' },
      }),
    );
  });
}

function draw(runs: readonly Run[]): string {
  const chart = init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height: HEIGHT });
  const x = (gridIndex: number) => ({
    type: 'log' as const,
    gridIndex,
    name: 'topics',
    nameLocation: 'middle' as const,
    nameGap: 28,
  });
  const y = (gridIndex: number, name: string) => ({ type: 'log' as const, gridIndex, name });
  const legend = (curves: (run: Run) => readonly Curve[], left: number) => ({
    data: runs.flatMap((run) => curves(run).map(({ name }) => name)),
    left,
    bottom: 0,
    orient: 'vertical' as const,
    itemWidth: 34,
  });
  chart.setOption({
    animation: false,
    backgroundColor: '#ffffff',
    legend: [legend(costs, 60), legend(leases, WIDTH / 2 + 50)],
    grid: [
      { left: 60, top: 50, width: WIDTH / 2 - 100, height: HEIGHT - 200 },
      { left: WIDTH / 2 + 50, top: 50, width: WIDTH / 2 - 100, height: HEIGHT - 200 },
    ],
    xAxis: [x(0), x(1)],
    yAxis: [y(0, 'µs a task'), y(1, 'ms a lease call')],
    series: [...seriesOf(runs, costs, 0), ...seriesOf(runs, leases, 1)],
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return svg;
}

const files = process.argv.slice(2);
if (files.length === 0) {
  console.error('Give the JSON of a bench: npx tsx bench/curves.ts topics.json > docs/many-topics.svg');
  process.exitCode = 2;
} else {
  process.stdout.write(`${draw(files.map((file) => JSON.parse(readFileSync(file, 'utf8')) as Run))}\n`);
}
