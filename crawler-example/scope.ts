import { getDomain } from 'tldts';
import { hostOf, isTrap } from './url.ts';

/**
 * Which hosts a crawl stays on: `same` those of the seeds, `site` all under the seeds' registrable domains,
 * `any` all; or a list of names, each with everything below it.
 */
export type FollowHosts = 'same' | 'site' | 'any' | readonly string[];

/** Decides whether a link belongs to this crawl. */
export class Scope {
  readonly #follow: FollowHosts;
  readonly #maxDepth: number;
  readonly #hosts = new Set<string>();
  readonly #sites = new Set<string>();

  /** @param maxDepth links from a seed; Infinity for no limit */
  constructor(follow: FollowHosts, maxDepth: number) {
    this.#follow = typeof follow === 'string' ? follow : follow.map((name) => name.toLowerCase().replace(/^\*?\./, ''));
    this.#maxDepth = maxDepth;
  }

  /** Takes in a seed's host, or the host that a seed redirects to. */
  admit(url: string): void {
    this.#hosts.add(hostOf(url));
    const { hostname } = new URL(url);
    this.#sites.add(siteOf(hostname));
  }

  /** @param depth links from a seed */
  allows(url: string, depth: number): boolean {
    if (depth > this.#maxDepth || isTrap(url)) return false;
    if (this.#follow === 'any' || this.#hosts.has(hostOf(url))) return true;
    if (this.#follow === 'same') return false;
    const { hostname } = new URL(url);
    if (this.#follow === 'site') return this.#sites.has(siteOf(hostname));
    return this.#follow.some((name) => hostname === name || hostname.endsWith(`.${name}`));
  }
}

/** The registrable domain by the Public Suffix List, github.io and its like included; addresses stand for themselves. */
const siteOf = (hostname: string): string => getDomain(hostname, { allowPrivateDomains: true }) ?? hostname;
