const BAD = Symbol('bad query');

/**
 * Reads a query string. One that is not valid percent-encoded UTF-8 is marked rather than repaired: the router calls
 * this where nothing catches an error, so validation refuses it later (`isBadQuery`).
 */
export function parseQuery(text: string): Record<string, unknown> {
  const query: Record<string, unknown> = Object.create(null);
  if (text === '') return query;
  try {
    for (const pair of text.split('&')) {
      if (pair === '') continue;
      const at = pair.indexOf('=');
      const name = decode(at < 0 ? pair : pair.slice(0, at));
      const value = at < 0 ? '' : decode(pair.slice(at + 1));
      const before = query[name];
      // A name that occurs twice becomes a list, which no field of a query is.
      query[name] = before === undefined ? value : [before, value].flat();
    }
    return query;
  } catch {
    return { [BAD]: true };
  }
}

export const isBadQuery = (query: unknown): boolean => (query as { [BAD]?: true })[BAD] === true;

const decode = (text: string): string => decodeURIComponent(text.replaceAll('+', ' '));
