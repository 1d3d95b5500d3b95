import { readFileSync } from 'node:fs';

/** The package's version; the file lies two levels up from here, in `src` and in `dist` alike. */
export const VERSION = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
