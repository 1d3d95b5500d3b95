/**
 * Sitemaps (https://www.sitemaps.org/protocol.html): lists of pages, indexes of lists, plain lists of lines, each also
 * gzipped. Read as a stream of tags by a parser that knows no document types: it expands no entities but XML's own
 * five and characters by number, and whatever brings a DOCTYPE is refused, as the protocol has none.
 */
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { Parser } from 'htmlparser2';
import { normaliseUrl, URL_BYTES } from './url.ts';

/** A sitemap has three levels, extensions a few more; the parser's time grows with the square of the depth. */
const DEPTH = 100;
/** The protocol's limit for one list. */
const ENTRIES = 50_000;

export interface SitemapEntry {
  /** Normalised. */
  readonly url: string;
  /** Milliseconds since 1970. */
  readonly lastModified: number | null;
  /** 0 to 1; null where the sitemap has none. */
  readonly priority: number | null;
}

export interface Sitemap {
  readonly pages: readonly SitemapEntry[];
  /** Other sitemaps that an index names. */
  readonly sitemaps: readonly SitemapEntry[];
}

export class SitemapError extends Error {
  override readonly name = 'SitemapError';
}

const unzip = promisify(gunzip);

/**
 * @param body as it came, after content codings
 * @param url where it was found
 * @param maxBytes after decompression
 * @throws SitemapError where it is too large or no sitemap
 */
export async function parseSitemap(body: Buffer, url: string, maxBytes: number): Promise<Sitemap> {
  let plain = body;
  if (body[0] === 0x1f && body[1] === 0x8b) {
    try {
      plain = await unzip(body, { maxOutputLength: maxBytes });
    } catch (error) {
      const large = (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE';
      throw new SitemapError(large ? 'larger than allowed after decompression' : 'damaged gzip');
    }
  }
  const text = plain.toString('utf8').replace(/^\uFEFF/, '');
  return text.trimStart().startsWith('<') ? parseXml(text, url) : parseLines(text, url);
}

/** One address a line. */
function parseLines(text: string, url: string): Sitemap {
  const pages: SitemapEntry[] = [];
  for (const line of text.split(/[\r\n]+/)) {
    const page = /^\s*https?:\/\//i.test(line) ? normaliseUrl(line, url) : null;
    if (page !== null) pages.push({ url: page, lastModified: null, priority: null });
    if (pages.length >= ENTRIES) break;
  }
  return { pages, sitemaps: [] };
}

function parseXml(text: string, url: string): Sitemap {
  const found: { readonly url: SitemapEntry[]; readonly sitemap: SitemapEntry[] } = { url: [], sitemap: [] };
  // Extensions have elements of the same names (image:loc): only the root's own prefix counts.
  let prefix: string | null = null;
  let depth = 0;
  let entry: 'url' | 'sitemap' | null = null;
  let field: string | null = null;
  let fields: Record<string, string> = {};

  const parser = new Parser(
    {
      onprocessinginstruction: (name) => {
        if (name.toLowerCase() === '!doctype') throw new SitemapError('has a DOCTYPE');
      },
      onopentag: (name) => {
        if (++depth > DEPTH) throw new SitemapError('nested too deeply');
        if (prefix === null) {
          const root = /^(.*:)?(urlset|sitemapindex)$/.exec(name);
          if (root === null) throw new SitemapError(`begins with <${name.slice(0, 40)}>`);
          prefix = root[1] ?? '';
        } else if (name === `${prefix}url` || name === `${prefix}sitemap`) {
          entry = name.endsWith('url') ? 'url' : 'sitemap';
          fields = {};
        } else field = entry !== null && name.startsWith(prefix) ? name.slice(prefix.length) : '';
      },
      ontext: (piece) => {
        if (field !== 'loc' && field !== 'lastmod' && field !== 'priority') return;
        const soFar = fields[field] ?? '';
        if (soFar.length <= URL_BYTES) fields[field] = soFar + piece;
      },
      onclosetag: (name) => {
        depth--;
        field = null;
        if (entry === null || name !== `${prefix}${entry}`) return;
        const read = toEntry(fields, url);
        const list = found[entry];
        if (read !== null && list.length < ENTRIES) list.push(read);
        entry = null;
      },
    },
    { xmlMode: true },
  );
  parser.end(text);
  if (prefix === null) throw new SitemapError('has no root element');
  return { pages: found.url, sitemaps: found.sitemap };
}

function toEntry(fields: Readonly<Record<string, string>>, base: string): SitemapEntry | null {
  const url = normaliseUrl((fields.loc ?? '').trim(), base);
  if (url === null || (fields.loc ?? '').trim() === '') return null;
  const modified = Date.parse((fields.lastmod ?? '').trim());
  const priority = Number.parseFloat(fields.priority ?? '');
  return {
    url,
    lastModified: Number.isNaN(modified) ? null : modified,
    priority: priority >= 0 && priority <= 1 ? priority : null,
  };
}
