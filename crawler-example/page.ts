/** Reads what a crawler wants from an HTML page, in one pass and without building a tree. */
import { Parser } from 'htmlparser2';
import { parseMetaRobots, type RobotsDirectives } from './headers.ts';
import { normaliseUrl } from './url.ts';

export interface ParsedPage {
  readonly title: string | null;
  /** Normalised, each once, in the order of the page; without those that rel=nofollow takes out. */
  readonly links: readonly string[];
  /** Normalised; null where the page names none. */
  readonly canonical: string | null;
  readonly robots: RobotsDirectives;
}

/** Links taken from one page; what comes behind is noise or a trap. */
const LINKS = 10_000;
const TITLE_CHARS = 300;
/**
 * Elements inside each other. The parser's time grows with the square of the depth, so that a page of nothing but
 * `<b>` would hold everything up for minutes; pages meant to be read stay far below.
 */
const DEPTH = 5_000;
/** How far into a page its encoding may be declared (WHATWG's prescan). */
const PRESCAN_BYTES = 1024;

/** Kinds of `link` elements that lead to pages. */
const LINK_TYPES = new Set(['next', 'prev', 'alternate', 'index', 'contents', 'up', 'help', 'license', 'search']);

/** Whether a body of this media type is parsed; all others are recorded as they are. */
export const isHtml = (type: string): boolean => type === 'text/html' || type === 'application/xhtml+xml';

/**
 * @param url where the page was found, normalised
 * @param charset of the Content-Type header
 * @param token our product token in lower case: a meta element of that name speaks to us
 */
export function parsePage(body: Buffer, url: string, charset: string | null, token: string): ParsedPage {
  let base: string | null = null;
  let canonical: string | null = null;
  let title: string | null = null;
  let inTitle = false;
  let inSvg = 0;
  let noindex = false;
  let nofollow = false;
  // Kept as they stand until the end: a base element holds for links before it as well.
  const hrefs: string[] = [];
  const add = (href: string | undefined): void => {
    if (href !== undefined && hrefs.length < LINKS) hrefs.push(href);
  };

  const open: Record<string, (attributes: Record<string, string>) => void> = {
    base: ({ href }) => {
      base ??= href ?? null;
    },
    // SVG has titles too.
    svg: () => {
      inSvg++;
    },
    title: () => {
      if (title === null && inSvg === 0) {
        inTitle = true;
        title = '';
      }
    },
    a: ({ href, rel }) => {
      if (!words(rel).includes('nofollow')) add(href);
    },
    iframe: ({ src }) => add(src),
    frame: ({ src }) => add(src),
    link: ({ href, rel, type }) => {
      const types = words(rel);
      if (types.includes('canonical')) canonical ??= href ?? null;
      const stylesheet = types.includes('stylesheet');
      const other = type !== undefined && !isHtml(type.trim().toLowerCase());
      if (!stylesheet && !other && !types.includes('nofollow') && types.some((t) => LINK_TYPES.has(t))) add(href);
    },
    meta: (attributes) => {
      const content = attributes.content ?? '';
      const name = (attributes.name ?? '').trim().toLowerCase();
      if (name === 'robots' || name === token) {
        const said = parseMetaRobots(content);
        noindex ||= said.noindex;
        nofollow ||= said.nofollow;
      }
      if ((attributes['http-equiv'] ?? '').trim().toLowerCase() === 'refresh') {
        add(/^\s*[\d.]+\s*[;,]\s*(?:url\s*=\s*)?["']?([^"']+)/i.exec(content)?.[1]);
      }
    },
  };
  open.area = open.a!;

  let depth = 0;
  const parser = new Parser({
    onopentag: (name, attributes) => {
      if (++depth > DEPTH) throw new TooDeep();
      if (Object.hasOwn(open, name)) open[name]!(attributes);
    },
    ontext: (text) => {
      if (inTitle && title !== null && title.length < TITLE_CHARS * 2) title += text;
    },
    onclosetag: (name) => {
      depth--;
      if (name === 'title') inTitle = false;
      if (name === 'svg' && inSvg > 0) inSvg--;
    },
  });
  try {
    parser.end(decodeHtml(body, charset));
  } catch (error) {
    // What stands before counts.
    if (!(error instanceof TooDeep)) throw error;
  }

  const from = (base === null ? null : normaliseUrl(base, url)) ?? url;
  const links = new Set<string>();
  if (!nofollow) {
    for (const href of hrefs) {
      const link = normaliseUrl(href, from);
      if (link !== null && link !== url) links.add(link);
    }
  }
  const text = (title as string | null)?.replace(/\s+/g, ' ').trim().slice(0, TITLE_CHARS) ?? '';
  return {
    title: text === '' ? null : text,
    links: [...links],
    canonical: canonical === null ? null : normaliseUrl(canonical, from),
    robots: { noindex, nofollow },
  };
}

class TooDeep extends Error {}

const words = (text: string | undefined): readonly string[] => (text ?? '').toLowerCase().split(/\s+/);

/**
 * Bytes to text: a byte order mark wins over the header, the header over the page's own declaration, and UTF-8 is
 * the guess where all are silent (https://encoding.spec.whatwg.org/, https://html.spec.whatwg.org/#determining-the-character-encoding).
 */
function decodeHtml(body: Buffer, charset: string | null): string {
  const label = markOf(body) ?? charset ?? declaredIn(body) ?? 'utf-8';
  try {
    return new TextDecoder(label).decode(body);
  } catch {
    return new TextDecoder('utf-8').decode(body);
  }
}

function markOf(body: Buffer): string | null {
  if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) return 'utf-8';
  if (body[0] === 0xff && body[1] === 0xfe) return 'utf-16le';
  if (body[0] === 0xfe && body[1] === 0xff) return 'utf-16be';
  return null;
}

function declaredIn(body: Buffer): string | null {
  const head = body.subarray(0, PRESCAN_BYTES).toString('latin1');
  const label = /<meta\b[^>]*?charset\s*=\s*["']?\s*([\w-]+)/i.exec(head)?.[1]?.toLowerCase() ?? null;
  // A page whose declaration could be read as ASCII can't be in UTF-16.
  return label?.startsWith('utf-16') ? 'utf-8' : label;
}
