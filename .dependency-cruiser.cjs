/**
 * Which way imports go: http → queue → core, and queue/scheduler → the store port → a driver. See ARCHITECTURE.md.
 * `from.path` and `to.path` are regular expressions on paths from the top of the repository.
 */

const NOT_OURS = 'node_modules';
const OPEN = '^src/queue/open\\.ts$';
const PORT = '^src/store/store\\.ts$';
/** What an address and its settings may look like, which the program's settings have to know before a store is opened. */
const ADDRESS = '^src/store/cassandra/address\\.ts$';

/** @type {import('dependency-cruiser').IConfiguration} */
module.exports = {
  forbidden: [
    { name: 'no-circular', severity: 'error', from: {}, to: { circular: true } },
    { name: 'resolvable', severity: 'error', from: {}, to: { couldNotResolve: true } },
    {
      name: 'core-is-pure',
      comment: 'core does no I/O and knows no clock: it imports nothing outside core, packages and Node included.',
      severity: 'error',
      from: { path: '^src/core/' },
      to: { pathNot: '^src/core/' },
    },
    {
      name: 'port-knows-only-core',
      severity: 'error',
      from: { path: PORT },
      to: { pathNot: '^src/core/' },
    },
    {
      name: 'driver-knows-only-core-and-port',
      comment: 'A driver imports the port, core, and its own folder; of ours nothing else.',
      severity: 'error',
      from: { path: '^src/store/([^/]+)/' },
      to: { path: '^(src|crawler-example|examples|test|bench)/', pathNot: ['^src/store/$1/', '^src/core/', PORT] },
    },
    {
      name: 'one-place-knows-drivers',
      comment: 'Only the composition in src/queue/open.ts picks a driver; everything else speaks to the port.',
      severity: 'error',
      from: { path: '^(src|crawler-example|examples)/', pathNot: ['^src/store/', '^src/testing/', OPEN] },
      to: { path: '^src/store/', pathNot: [PORT, ADDRESS] },
    },
    {
      name: 'testing-is-the-queue-in-memory',
      comment:
        'What users test with is the queue itself, on the store in memory; it drags in no database, and nothing of HTTP.',
      severity: 'error',
      from: { path: '^src/testing/' },
      to: { path: '^(src|crawler-example)/', pathNot: ['^src/(testing|core|queue)/', '^src/store/memory/', PORT] },
    },
    {
      name: 'testing-drags-in-no-driver',
      severity: 'error',
      from: { path: '^src/testing/' },
      to: {
        path: ['^src/store/(sqlite|cassandra)/', '/better-sqlite3/', '/cassandra-driver/', '^src/http/'],
        reachable: true,
      },
    },
    {
      name: 'queue-is-below',
      comment: 'queue and scheduler know neither HTTP nor its clients.',
      severity: 'error',
      from: { path: '^src/(queue|scheduler)/' },
      to: { path: '^(src|crawler-example)/', pathNot: '^src/(core|store|queue|scheduler|telemetry)/' },
    },
    {
      name: 'http-reaches-queue-only',
      comment: 'http speaks to the queue, not to what the queue is made of. (core: error codes, bounds, types.)',
      severity: 'error',
      from: { path: '^src/http/' },
      to: { path: '^(src|crawler-example)/', pathNot: '^src/(http|queue|core|telemetry)/' },
    },
    {
      name: 'client-reaches-http-only',
      comment:
        'A client works over the network, or with a queue that it is given. Of the server it shares types and core, which is pure.',
      severity: 'error',
      from: { path: '^src/client/' },
      to: {
        path: '^(src|crawler-example|examples)/',
        pathNot: '^src/(client|core|telemetry)/',
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'client-needs-no-packages',
      comment:
        'Whoever uses the client alone loads Node, the client, and the API of OpenTelemetry, which does nothing by itself.',
      severity: 'error',
      from: { path: '^src/(client|telemetry)/' },
      to: { dependencyTypesNot: ['type-only', 'core', 'local'], pathNot: '/@opentelemetry/api/' },
    },
    {
      name: 'telemetry-stands-alone',
      comment: 'What spans have in common, for the queue, the server and the client.',
      severity: 'error',
      from: { path: '^src/telemetry/' },
      to: { path: '^(src|crawler-example)/', pathNot: '^src/(telemetry|core)/' },
    },
    {
      name: 'example-uses-the-package',
      comment:
        'The crawler and the examples are users like any other: they reach the queue by what the package exports, or over HTTP.',
      severity: 'error',
      from: { path: '^(crawler-example|examples)/' },
      to: { path: '^(src|test|bench)/', pathNot: '^src/((testing|client)/)?index\\.ts$' },
    },
    {
      name: 'src-stands-alone',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(crawler-example|examples|test|bench|dist)/' },
    },
    {
      name: 'src-needs-no-dev-packages',
      comment: 'What src imports has to be there after `npm install ebbmark`.',
      severity: 'error',
      from: { path: '^src/' },
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'], dependencyTypesNot: ['type-only'] },
    },
  ],
  options: {
    doNotFollow: { path: NOT_OURS },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'types'] },
    cache: { folder: 'node_modules/.cache/dependency-cruiser', strategy: 'content' },
  },
};
