/**
 * A real documentation tree from outside the project, served on loopback under twenty host names: each file belongs to
 * the host that a hash of its name picks, and links in pages are rewritten to lead there.
 *
 * Nothing here is shared with the crawler, neither code nor library.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const PACKAGE = 'postgresql-doc-15';
const TREE = `usr/share/doc/${PACKAGE}/html`;
const PAGES = 1_169;
export const HOSTS = 20;

export interface DocsTree {
  readonly dir: string;
  /** False where Debian's package could not be had, and a tree of its size was made up instead. */
  readonly real: boolean;
}

/** Fetches the package by apt-get, or makes up a tree of its size; kept in the system's directory for temporary files. */
export function docsTree(): DocsTree {
  const cache = join(tmpdir(), `ebbmark-${PACKAGE}`);
  const dir = join(cache, 'unpacked', TREE);
  if (existsSync(join(dir, 'index.html'))) return { dir, real: true };
  mkdirSync(cache, { recursive: true });
  const run = (file: string, ...args: readonly string[]): unknown =>
    execFileSync(file, args, { cwd: cache, stdio: 'pipe', timeout: 120_000 });
  try {
    try {
      run('apt-get', 'download', PACKAGE);
    } catch {
      // The lists of a fresh machine are empty.
      run('apt-get', 'update');
      run('apt-get', 'download', PACKAGE);
    }
    const deb = readdirSync(cache).find((name) => name.endsWith('.deb'))!;
    // Moved once it is whole, so that a run that was cut leaves nothing behind that looks like a tree.
    run('dpkg-deb', '-x', deb, 'unpacking');
    renameSync(join(cache, 'unpacking'), join(cache, 'unpacked'));
    return { dir, real: true };
  } catch (error) {
    const made = join(tmpdir(), `ebbmark-made-up-docs`);
    console.warn(`${PACKAGE} could not be had (${String(error).slice(0, 200)}): crawling a made-up tree instead`);
    if (!existsSync(join(made, 'index.html'))) makeUpTree(made);
    return { dir: made, real: false };
  }
}

/** As many pages as the package has: a tree of chapters, each page linked to its neighbours, parent and some others. */
function makeUpTree(dir: string): void {
  mkdirSync(dir, { recursive: true });
  const name = (n: number): string => (n === 0 ? 'index.html' : `page-${n}.html`);
  for (let n = PAGES - 1; n >= 0; n--) {
    const near = [
      n - 1,
      n + 1,
      Math.floor((n - 1) / 8),
      ...[1, 2, 3, 4, 5, 6, 7, 8].map((i) => n * 8 + i),
      (n * n + 7) % PAGES,
    ];
    const links = near.filter((m) => m >= 0 && m < PAGES).map((m) => `<a href="${name(m)}#s${n}">${m}</a>`);
    writeFileSync(
      join(dir, name(n)),
      `<html><head><title>${n}</title></head><body>${links.join('\n')}${'text '.repeat(2_000)}</body></html>`,
    );
  }
}

/** The host of a file: djb2 of its name. */
export function hostNumber(file: string): number {
  let hash = 5381;
  for (const char of file) hash = (hash * 33 + char.charCodeAt(0)) % 4_294_967_296;
  return hash % HOSTS;
}

const HREF = /(<a\b[^>]*?\bhref=")([^"#:]+\.html)([#"])/g;

/** Pages that can be reached from the index, by following links from file to file. */
export function reachable(dir: string): ReadonlySet<string> {
  const found = new Set(['index.html']);
  for (const file of found) {
    for (const match of readFileSync(join(dir, file), 'utf8').matchAll(HREF)) {
      if (existsSync(join(dir, match[2]!))) found.add(match[2]!);
    }
  }
  return found;
}

export interface DocsSite {
  readonly port: number;
  urlOf(file: string): string;
  /** Pages served so far. */
  readonly served: () => number;
  /** Calls back as soon as so many pages were served, before the last of them is answered. */
  onServed(count: number, then: () => void): void;
  close(): Promise<void>;
}

export async function serveDocs(dir: string): Promise<DocsSite> {
  const cache = new Map<string, Buffer>();
  let served = 0;
  let waiting: { readonly count: number; readonly then: () => void }[] = [];
  const server = createServer((request, response) => {
    const file = decodeURIComponent((request.url ?? '/').slice(1));
    const host = /^h(\d+)\.docs\.test:/.exec(request.headers.host ?? '')?.[1];
    if (!/^[\w.-]+\.html$/.test(file) || !existsSync(join(dir, file))) {
      response.writeHead(404).end();
    } else if (Number(host) !== hostNumber(file)) {
      response.writeHead(301, { location: urlOf(file) }).end();
    } else {
      served++;
      for (const { count, then } of waiting) if (count === served) then();
      waiting = waiting.filter(({ count }) => count > served);
      const body = cache.get(file) ?? rewrite(readFileSync(join(dir, file), 'utf8'));
      cache.set(file, body);
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'content-length': body.length }).end(body);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const urlOf = (file: string): string => `http://h${hostNumber(file)}.docs.test:${port}/${file}`;
  // Every tenth link is left as it is, so that it leads to its file only by way of a redirect.
  const rewrite = (html: string): Buffer => {
    let n = 0;
    return Buffer.from(
      html.replace(HREF, (all, before: string, file: string, after: string) =>
        n++ % 10 === 9 ? all : `${before}${urlOf(file)}${after}`,
      ),
    );
  };
  return {
    port,
    urlOf,
    served: () => served,
    onServed: (count, then) => waiting.push({ count, then }),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
