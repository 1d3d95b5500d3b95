/** Text for people: aligned columns, numbers with separators, names that cannot do harm. */

/** Characters of a name that are shown at the most. */
export const SHOWN_NAME = 128;

// Control characters could command a terminal; separators and direction marks could disguise what follows.
const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Co}\p{Cn}]/gu;

const escaped = (char: string): string => `\\u{${char.codePointAt(0)!.toString(16)}}`;

/** A text of someone else's, escaped, and cut at so many characters. */
export function safeText(text: string, max = SHOWN_NAME): string {
  const characters = Array.from(text.slice(0, max * 2 + 2));
  const cut = characters.length > max ? `${characters.slice(0, max - 1).join('')}…` : characters.join('');
  return cut.replace(UNSAFE, escaped);
}

export const count = (value: number): string => value.toLocaleString('en-US');

/** `512 B`, `3.4 MiB`, `1.2 GiB`. */
export function size(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let value = bytes;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

/** `4.2 s`, `3 min 5 s`, `2 h 10 min`, `5 d 3 h`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

export const time = (ms: number): string => new Date(ms).toISOString();

/** Columns under their heads, numbers to the right. Cells have to be safe already. */
export function columns(heads: readonly string[], rows: readonly (readonly (string | number | null)[])[]): string {
  const cells = rows.map((row) =>
    row.map((cell) => (cell === null ? '–' : typeof cell === 'number' ? count(cell) : cell)),
  );
  const numeric = heads.map((_, at) => rows.every((row) => typeof row[at] !== 'string') && rows.length > 0);
  const widths = heads.map((head, at) => Math.max(width(head), ...cells.map((row) => width(row[at] ?? ''))));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, at) => {
        const fill = ' '.repeat(widths[at]! - width(cell));
        return numeric[at] ? fill + cell : cell + fill;
      })
      .join('  ')
      .trimEnd();
  return [heads, ...cells].map(line).join('\n');
}

/** Characters, not UTF-16 units; what is wider than one cell is not told apart. */
const width = (text: string): number => Array.from(text).length;
