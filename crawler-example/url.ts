/**
 * One spelling for each page: the normalised URL is the page's key in the pages file and its message id in the queue,
 * so two spellings of one address must come out the same, and two pages must never share one.
 *
 * Only what RFC 3986 §6.2 calls equivalent is unified, plus what never selects a page (fragments, session ids, marks
 * of advertising). `normalize-url` was tried and left: it also collapses `//` inside a path and decodes escapes such
 * as `%C3%A9`, which some servers answer differently.
 */

/** A message id holds at most this many bytes; longer addresses are traps more often than pages. */
export const URL_BYTES = 2048;
/** A topic holds 255 bytes; this leaves room for a port and a prefix. The DNS would allow 253. */
const HOST_CHARS = 230;
/** Heritrix cuts at 20; documentation trees are deeper now and then. */
const PATH_SEGMENTS = 30;
/** Times that a group of segments may stand in a row: `/a/b/a/b/a/b` comes from relative links that nest. */
const REPEATS = 3;

const TRACKING =
  /^(?:utm_[a-z_]+|gclid|dclid|gbraid|wbraid|fbclid|msclkid|yclid|mc_cid|mc_eid|_ga|_gl|phpsessid|jsessionid)(?:=|$)/i;
const UNRESERVED = /[A-Za-z0-9\-._~]/;

/**
 * The normalised form of a link, or null where it can't be one of ours: another scheme than http and https,
 * credentials in it, no usable host, too long.
 * @param raw as it stands in the page
 * @param base what relative links are relative to
 */
export function normaliseUrl(raw: string, base?: string): string | null {
  if (raw.length > 4 * URL_BYTES) return null;
  let url: URL;
  try {
    // The parser lowers scheme and host, drops default ports, resolves dot segments, turns IDNs into punycode and
    // decimal, octal or hexadecimal hosts into dotted addresses.
    url = new URL(raw, base);
  } catch {
    return null;
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return null;
  if (url.username !== '' || url.password !== '') return null;
  const hostname = url.hostname.replace(/\.$/, '');
  if (hostname.length > HOST_CHARS) return null;
  // The URL parser lets through `*` and other characters that no host name has.
  if (!/^\[|^[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*$/.test(hostname)) return null;
  const host = url.port === '' ? hostname : `${hostname}:${url.port}`;
  const path = normaliseEscapes(url.pathname).replace(/;jsessionid=[^/;]*/gi, '');
  const text = `${url.protocol}//${host}${path || '/'}${normaliseQuery(url.search)}`;
  return text.length > URL_BYTES ? null : text;
}

/**
 * Decodes the escapes of unreserved characters and raises the case of the others (RFC 3986 §6.2.2): `%7e` is `~`, and
 * `%2f`, which is not the same as `/`, becomes `%2F`.
 */
export function normaliseEscapes(text: string): string {
  return text.replace(/%[0-9a-f]{2}/gi, (triplet) => {
    const char = String.fromCharCode(Number.parseInt(triplet.slice(1), 16));
    return UNRESERVED.test(char) ? char : triplet.toUpperCase();
  });
}

/** The order of parameters is kept: some servers read them by place. */
function normaliseQuery(search: string): string {
  if (search.length < 2) return '';
  const kept = normaliseEscapes(search.slice(1))
    .split('&')
    .filter((part) => part !== '' && !TRACKING.test(part));
  return kept.length === 0 ? '' : `?${kept.join('&')}`;
}

/** The host of a normalised URL, with its port where that isn't the default: the unit of politeness. */
export const hostOf = (url: string): string => new URL(url).host;

/** Scheme, host and port: the unit that a robots.txt governs. */
export const originOf = (url: string): string => new URL(url).origin;

/**
 * Whether an address looks like one of endlessly many that a page makes up: too many segments, or a group of one to
 * three segments that repeats. The rule is Heritrix's (TooManyPathSegments, PathologicalPath).
 */
export function isTrap(url: string): boolean {
  const segments = new URL(url).pathname.split('/').slice(1);
  if (segments.length > PATH_SEGMENTS) return true;
  for (let size = 1; size <= 3; size++) {
    let run = 0;
    for (let i = size; i < segments.length; i++) {
      run = segments[i] !== '' && segments[i] === segments[i - size] ? run + 1 : 0;
      if (run >= size * REPEATS) return true;
    }
  }
  return false;
}
