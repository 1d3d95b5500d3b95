/**
 * The pages file: what was found, in SQLite. Its rows are keyed by the normalised URL and written before the queue
 * hears of the task's end, so a task that is delivered again after a crash meets its own row and overwrites it.
 * A page's row is written after its links were enqueued: a row that is there vouches for its links.
 */
import Database from 'better-sqlite3';

/**
 * - `stored`: a page (or other document); what --max-pages counts
 * - `alias`: a page that names another as its canonical one, which is fetched in its place
 * - `redirect`: led to `canonical`
 * - `noindex`: fetched, its links followed, but not to be listed
 * - `failed`: an error status, or every attempt failed
 * - `refused`: not fetched: robots.txt or the address forbade it
 */
export type PageState = 'stored' | 'alias' | 'redirect' | 'noindex' | 'failed' | 'refused';

export interface PageRow {
  readonly url: string;
  readonly host: string;
  readonly state: PageState;
  /** HTTP status; null where there was no response. */
  readonly status: number | null;
  readonly reason: string | null;
  readonly contentType: string | null;
  readonly title: string | null;
  /** After decompression. */
  readonly bytes: number | null;
  /** SHA-256 of the body, in hex. */
  readonly hash: string | null;
  /** Links from a seed, by the way it was found first. */
  readonly depth: number;
  /** The canonical URL of an alias, the target of a redirect. */
  readonly canonical: string | null;
  readonly referrer: string | null;
  /** What the sitemap said, in milliseconds since 1970. */
  readonly lastModified: number | null;
  /** Milliseconds since 1970. */
  readonly fetchedAt: number;
}

export interface RobotsRow {
  readonly origin: string;
  /** `rules`: `body` holds them (empty: all is allowed); `unreachable`: nothing is allowed for now; `refused`: for good. */
  readonly state: 'rules' | 'unreachable' | 'refused';
  readonly body: string;
  readonly fetchedAt: number;
  /** When it is fetched again, in milliseconds since 1970. */
  readonly expiresAt: number;
  /** Fetches in a row that failed. */
  readonly failures: number;
}

export interface HostRow {
  readonly host: string;
  readonly delayMs: number;
  /** The settings its topic was given, as JSON; null before. */
  readonly settings: string | null;
  /** Taken into the scope because a seed redirected there. */
  readonly admitted: number;
}

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS pages (
    url TEXT PRIMARY KEY, host TEXT NOT NULL, state TEXT NOT NULL, status INTEGER, reason TEXT, contentType TEXT,
    title TEXT, bytes INTEGER, hash TEXT, depth INTEGER NOT NULL, canonical TEXT, referrer TEXT, lastModified INTEGER,
    fetchedAt INTEGER NOT NULL
  ) WITHOUT ROWID;
  CREATE INDEX IF NOT EXISTS pages_by_canonical ON pages (canonical) WHERE canonical IS NOT NULL;
  CREATE TABLE IF NOT EXISTS fetches (
    id INTEGER PRIMARY KEY, url TEXT NOT NULL, started INTEGER NOT NULL, ended INTEGER, outcome TEXT, pid INTEGER NOT NULL
  );
  CREATE TABLE IF NOT EXISTS robots (
    origin TEXT PRIMARY KEY, state TEXT NOT NULL, body TEXT NOT NULL, fetchedAt INTEGER NOT NULL,
    expiresAt INTEGER NOT NULL, failures INTEGER NOT NULL
  ) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS hosts (
    host TEXT PRIMARY KEY, delayMs INTEGER NOT NULL, settings TEXT, admitted INTEGER NOT NULL DEFAULT 0
  ) WITHOUT ROWID;
  PRAGMA user_version = 1;`;

/** Aliases and redirects in a row that are looked through. */
const CHAIN = 10;

const columns = (names: string): string => `(${names}) VALUES (${names.replace(/\w+/g, '@$&')})`;

export class Pages {
  readonly #db: Database.Database;
  readonly #statements = new Map<string, Database.Statement>();

  /** @param path a file, or `:memory:` */
  constructor(path: string) {
    this.#db = new Database(path);
    try {
      this.#db.pragma('journal_mode = WAL');
    } catch (error) {
      this.#db.close();
      throw new Error(`${path}: ${(error as Error).message}`);
    }
    // The queue forgets a task once it is acknowledged, so its row must outlast a power cut as well.
    this.#db.pragma('synchronous = FULL');
    this.#db.pragma('busy_timeout = 10000');
    const version = this.#db.pragma('user_version', { simple: true });
    if (version !== 0 && version !== 1) throw new Error(`${path}: written by a newer version (schema ${version})`);
    this.#db.exec(SCHEMA);
  }

  page(url: string): PageRow | undefined {
    return this.#prepare('SELECT * FROM pages WHERE url = ?').get(url) as PageRow | undefined;
  }

  /**
   * Writes a page's row and the end of its fetch in one transaction.
   * @returns by how many the number of stored pages changed: -1, 0 or 1
   */
  record(row: PageRow, fetchId: number | null): number {
    return this.#db.transaction(() => {
      const before = this.page(row.url)?.state === 'stored' ? 1 : 0;
      this.#put(row);
      if (fetchId !== null) this.endFetch(fetchId, row.state, row.fetchedAt);
      const promoted = this.#settleChain(row);
      const after = this.page(row.url)?.state === 'stored' ? 1 : 0;
      return after - before + (promoted === null || promoted === row.url ? 0 : 1);
    })();
  }

  /**
   * A page must not get lost because its canonical link is wrong. Where the chain of canonical links and redirects
   * from this row, or to it, runs in a circle or ends in an error, one alias on it is stored after all: it was fetched,
   * all of its columns are there. Returns its URL.
   */
  #settleChain(row: PageRow): string | null {
    const gone = row.state === 'failed' || row.state === 'refused';
    const leadsOn = row.state === 'alias' || row.state === 'redirect';
    if (!gone && !(leadsOn && this.#isDeadEnd(row.url))) return null;
    const alias = row.state === 'alias' ? row.url : this.#aliasOf(row.url);
    if (alias !== null) this.#prepare("UPDATE pages SET state = 'stored' WHERE url = ?").run(alias);
    return alias;
  }

  #isDeadEnd(start: string): boolean {
    let url: string | null = start;
    for (let i = 0; i < CHAIN && url !== null; i++) {
      const row = this.page(url);
      if (row === undefined) return false;
      if (row.state === 'failed' || row.state === 'refused') return true;
      if (row.state !== 'alias' && row.state !== 'redirect') return false;
      url = row.canonical;
      if (url === start) return true;
    }
    return false;
  }

  #aliasOf(target: string): string | null {
    const seen = new Set([target]);
    let edge = [target];
    for (let i = 0; i < CHAIN && edge.length > 0; i++) {
      const next: string[] = [];
      for (const url of edge) {
        for (const row of this.#prepare(
          "SELECT url, state FROM pages WHERE canonical = ? AND state IN ('alias', 'redirect') ORDER BY fetchedAt LIMIT 100",
        ).iterate(url) as Iterable<Pick<PageRow, 'url' | 'state'>>) {
          if (row.state === 'alias') return row.url;
          if (!seen.has(row.url)) next.push(row.url);
          seen.add(row.url);
        }
      }
      edge = next;
    }
    return null;
  }

  #put(row: PageRow): void {
    this.#prepare(
      `INSERT OR REPLACE INTO pages ${columns(
        'url, host, state, status, reason, contentType, title, bytes, hash, depth, canonical, referrer, lastModified, fetchedAt',
      )}`,
    ).run(row);
  }

  /** Rows by state, and what they weigh. */
  totals(): { readonly states: Readonly<Record<PageState, number>>; readonly bytes: number; readonly hosts: number } {
    const states = { stored: 0, alias: 0, redirect: 0, noindex: 0, failed: 0, refused: 0 };
    let bytes = 0;
    for (const row of this.#prepare(
      'SELECT state, count(*) AS count, coalesce(sum(bytes), 0) AS bytes FROM pages GROUP BY state',
    ).all() as { state: PageState; count: number; bytes: number }[]) {
      states[row.state] = row.count;
      bytes += row.bytes;
    }
    const { hosts } = this.#prepare('SELECT count(DISTINCT host) AS hosts FROM pages').get() as { hosts: number };
    return { states, bytes, hosts };
  }

  /**
   * Notes a fetch before it is made: the log shows afterwards how often each address was asked for. It has to outlast
   * a killed process, which takes no sync (NORMAL: at a checkpoint only); waiting for the disk here would cost a third of the crawl's speed.
   */
  beginFetch(url: string, startedAt: number): number {
    this.#prepare('PRAGMA synchronous = NORMAL').run();
    try {
      const insert = this.#prepare('INSERT INTO fetches (url, started, pid) VALUES (?, ?, ?)');
      return Number(insert.run(url, startedAt, process.pid).lastInsertRowid);
    } finally {
      this.#prepare('PRAGMA synchronous = FULL').run();
    }
  }

  endFetch(id: number, outcome: string, endedAt: number): void {
    this.#prepare('UPDATE fetches SET ended = ?, outcome = ? WHERE id = ?').run(endedAt, outcome, id);
  }

  robots(origin: string): RobotsRow | undefined {
    return this.#prepare('SELECT * FROM robots WHERE origin = ?').get(origin) as RobotsRow | undefined;
  }

  putRobots(row: RobotsRow): void {
    this.#prepare(
      `INSERT OR REPLACE INTO robots ${columns('origin, state, body, fetchedAt, expiresAt, failures')}`,
    ).run(row);
  }

  /** Forgets that origins were refused or given up: a new run, perhaps with other flags, tries them again. */
  forgetUnreached(tries: number): void {
    this.#prepare("DELETE FROM robots WHERE state = 'refused' OR failures >= ?").run(tries);
  }

  host(host: string): HostRow | undefined {
    return this.#prepare('SELECT * FROM hosts WHERE host = ?').get(host) as HostRow | undefined;
  }

  hosts(): IterableIterator<HostRow> {
    return this.#prepare('SELECT * FROM hosts').all().values() as IterableIterator<HostRow>;
  }

  putHost(row: HostRow): void {
    this.#prepare(`INSERT OR REPLACE INTO hosts ${columns('host, delayMs, settings, admitted')}`).run(row);
  }

  close(): void {
    this.#db.close();
  }

  #prepare(sql: string): Database.Statement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#db.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}
