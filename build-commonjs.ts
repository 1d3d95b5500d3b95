/**
 * Makes the package for `require`, beside what tsc makes for `import`: Jest, and Node before 20.19 and 22.10, can't `require` an
 * ES module. A Node that can gets the ES modules either way (by the condition `module-sync` of package.json), so that no
 * process has both.
 *
 * All entries share their code: an error that one of them throws is of the class that another one exports. Only
 * tinyqueue is taken in, which there is as an ES module alone.
 */
import { readdirSync, statSync } from 'node:fs';
import { cp } from 'node:fs/promises';
import { builtinModules } from 'node:module';
import { basename, dirname, relative } from 'node:path/posix';
import { build, type Plugin } from 'rolldown';
import manifest from './package.json' with { type: 'json' };

const OUT = 'dist/cjs';
/** By where each is, in `src` and in `dist` alike. */
const ENTRIES = ['index', 'client/index', 'testing/index'];
const TAKEN_IN = ['tinyqueue'];

const packages = Object.keys(manifest.dependencies).filter((name) => !TAKEN_IN.includes(name));
const isOutside = (id: string): boolean =>
  id.startsWith('node:') ||
  builtinModules.includes(id) ||
  packages.some((name) => id === name || id.startsWith(`${name}/`));

/** What an entry's caller loads first: any Node can read it, and says so where it is too old for the rest. */
const gates: Plugin = {
  name: 'gates',
  generateBundle() {
    for (const entry of ENTRIES) {
      const path = (to: string): string => `./${relative(dirname(entry), to)}`.replace('./..', '..');
      const source = [
        `'use strict';`,
        `var fault = require('${path('../node-version.cjs')}').tooOld(process.version);`,
        'if (fault !== null) throw new Error(fault);',
        `module.exports = require('${path(`lib/${entry.replace('/', '-')}.js`)}');`,
        '',
      ].join('\n');
      this.emitFile({ type: 'asset', fileName: `${entry}.js`, source });
    }
    this.emitFile({ type: 'asset', fileName: 'package.json', source: '{ "type": "commonjs" }\n' });
  },
  /** The types are the same, and are read as those of CommonJS modules here. */
  async writeBundle() {
    const isType = (path: string): boolean => path.endsWith('.d.ts') || statSync(path).isDirectory();
    for (const name of readdirSync('dist')) {
      if (name !== basename(OUT)) await cp(`dist/${name}`, `${OUT}/${name}`, { recursive: true, filter: isType });
    }
  },
};

await build({
  input: Object.fromEntries(ENTRIES.map((entry) => [entry.replace('/', '-'), `src/${entry}.ts`])),
  platform: 'node',
  external: isOutside,
  plugins: [gates],
  output: {
    dir: OUT,
    format: 'cjs',
    // As deep as in `src` and in `dist`: the schema is found from there.
    entryFileNames: 'lib/[name].js',
    chunkFileNames: 'lib/[name]-[hash].js',
    sourcemap: true,
    cleanDir: true,
  },
});
