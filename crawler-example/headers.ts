/** What a crawler reads from response headers, each parser a function of the header's text. */

export interface RobotsDirectives {
  readonly noindex: boolean;
  readonly nofollow: boolean;
}

/** Longest time that a server can ask us to stay away, in milliseconds; whoever asks for more is asked again then. */
export const RETRY_AFTER_MS = 3_600_000;

/**
 * Retry-After as seconds or as a date (RFC 9110 §10.2.3), in milliseconds from now, between 0 and an hour; null where
 * it is absent or makes no sense.
 */
export function parseRetryAfter(value: string | undefined, nowMs: number): number | null {
  const text = value?.trim() ?? '';
  if (text === '') return null;
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - nowMs;
  // Date.parse reads many things as dates; only the HTTP forms begin with the name of a day.
  if (!/^\d+$/.test(text) && !/^(?:mon|tue|wed|thu|fri|sat|sun)/i.test(text)) return null;
  return Number.isNaN(ms) ? null : Math.min(Math.max(0, ms), RETRY_AFTER_MS);
}

/** Directives that bring a value after a colon, and so don't name a crawler. */
const VALUED = new Set(['unavailable_after', 'max-snippet', 'max-image-preview', 'max-video-preview']);

/**
 * X-Robots-Tag: directives for everybody, or after a crawler's name for that one alone
 * (https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag).
 * @param values one string a header line
 * @param token our product token, in lower case
 */
export function parseXRobotsTag(values: readonly string[], token: string): RobotsDirectives {
  const found: string[] = [];
  for (const value of values) {
    let agent = '*';
    for (const part of value.toLowerCase().split(',')) {
      const named = /^\s*([\w-]+)\s*:(.*)$/.exec(part);
      let directive = part;
      if (named?.[1] !== undefined && !VALUED.has(named[1])) {
        agent = named[1];
        directive = named[2] ?? '';
      }
      if (agent === '*' || agent === token) found.push(directive.trim());
    }
  }
  return directivesOf(found);
}

/** The content of a robots meta element. */
export const parseMetaRobots = (content: string): RobotsDirectives =>
  directivesOf(
    content
      .toLowerCase()
      .split(',')
      .map((part) => part.trim()),
  );

function directivesOf(words: readonly string[]): RobotsDirectives {
  const none = words.includes('none');
  return { noindex: none || words.includes('noindex'), nofollow: none || words.includes('nofollow') };
}

/** The target of `Link: <…>; rel="canonical"` (RFC 6596), as it stands there. */
export function canonicalOfLink(values: readonly string[]): string | null {
  for (const value of values) {
    for (const match of value.matchAll(/<([^<>]*)>((?:\s*;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^\s",;]+))*)/g)) {
      const rel = /;\s*rel\s*=\s*(?:"([^"]*)"|([^\s",;]+))/i.exec(match[2] ?? '');
      const types = (rel?.[1] ?? rel?.[2] ?? '').toLowerCase().split(/\s+/);
      if (types.includes('canonical')) return match[1] ?? null;
    }
  }
  return null;
}

export interface MediaType {
  /** In lower case, without parameters; empty where the header is absent. */
  readonly type: string;
  readonly charset: string | null;
}

export function parseMediaType(value: string | undefined): MediaType {
  const [type = '', ...parameters] = (value ?? '').split(';');
  for (const parameter of parameters) {
    const match = /^\s*charset\s*=\s*"?([^"\s]+)"?\s*$/i.exec(parameter);
    if (match?.[1] !== undefined) return { type: type.trim().toLowerCase(), charset: match[1].toLowerCase() };
  }
  return { type: type.trim().toLowerCase(), charset: null };
}
