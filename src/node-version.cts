/**
 * Looked at before anything else is loaded, by a Node that may be too old for the rest: nothing may stand here, nor in
 * bin.cts, that a Node of 2018 could not read.
 */
const manifest: { readonly version: string; readonly engines: { readonly node: string } } = require('../package.json');

/** Why this version of Node is too old, and what to do; null: it is not. */
function tooOld(found: string): string | null {
  const needed = manifest.engines.node.replace('>=', '');
  const [major, minor] = numbers(found);
  const [neededMajor, neededMinor] = numbers(needed);
  if (major > neededMajor || (major === neededMajor && minor >= neededMinor)) return null;
  return (
    `ebbmark ${manifest.version} needs Node.js ${needed} or newer, and this is Node.js ${found.replace('v', '')}: ` +
    'install a newer one from https://nodejs.org, or switch to one, for example by: nvm install 22'
  );
}

function numbers(version: string): readonly [number, number] {
  const parts = version.replace('v', '').split('.');
  return [Number(parts[0]), Number(parts[1])];
}

export = { tooOld };
