import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { parseSitemap } from '../../crawler-example/sitemap.ts';

const MAX = 1024 * 1024;
const parse = (text: string | Buffer, max = MAX) =>
  parseSitemap(Buffer.from(text as string), 'http://a.org/sitemap.xml', max);
const NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"';
const LIST = `<?xml version="1.0"?><urlset ${NS} xmlns:image="i">
  <url><loc> http://a.org/1?a=1&amp;b=2 </loc><lastmod>2026-01-02</lastmod><priority>0.8</priority>
    <image:image><image:loc>http://a.org/no.png</image:loc></image:image></url>
  <url><loc><![CDATA[http://a.org/2]]></loc><priority>7</priority><lastmod>when</lastmod></url>
  <url><loc>mailto:x@y.z</loc></url><url><lastmod>2026-01-02</lastmod></url>
</urlset>`;
const PAGES = [
  { url: 'http://a.org/1?a=1&b=2', lastModified: Date.parse('2026-01-02'), priority: 0.8 },
  { url: 'http://a.org/2', lastModified: null, priority: null },
];

describe('parseSitemap', () => {
  it('reads a list', async () => {
    expect(await parse(LIST)).toEqual({ pages: PAGES, sitemaps: [] });
  });

  it('reads it gzipped, and with a prefix of its own', async () => {
    expect((await parse(gzipSync(LIST))).pages).toEqual(PAGES);
    const prefixed = '<s:urlset xmlns:s="x"><s:url><s:loc>http://a.org/1</s:loc></s:url></s:urlset>';
    expect((await parse(prefixed)).pages.map(({ url }) => url)).toEqual(['http://a.org/1']);
  });

  it('reads an index', async () => {
    const { pages, sitemaps } = await parse(
      `<sitemapindex ${NS}><sitemap><loc>http://a.org/s1.xml.gz</loc></sitemap><sitemap><loc>/s2.xml</loc></sitemap></sitemapindex>`,
    );
    expect(pages).toEqual([]);
    expect(sitemaps.map(({ url }) => url)).toEqual(['http://a.org/s1.xml.gz', 'http://a.org/s2.xml']);
  });

  it('reads plain lines', async () => {
    const { pages } = await parse('\uFEFFhttp://a.org/1\r\n\n  http://a.org/2\nnot an address\n');
    expect(pages.map(({ url }) => url)).toEqual(['http://a.org/1', 'http://a.org/2']);
  });

  it('takes 50,000 entries and no more', async () => {
    const body = Array.from({ length: 50_010 }, (_, i) => `<url><loc>http://a.org/${i}</loc></url>`).join('');
    expect((await parse(`<urlset>${body}</urlset>`, 8 * MAX)).pages).toHaveLength(50_000);
  });

  it('refuses a gzip bomb once it is over the limit', async () => {
    const bomb = gzipSync(Buffer.alloc(64 * MAX, 32));
    expect(bomb.length).toBeLessThan(MAX);
    await expect(parse(bomb)).rejects.toThrow('larger than allowed');
  });

  it('refuses entity bombs and everything else with a DOCTYPE', async () => {
    const lol = `<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
      <urlset><url><loc>http://a.org/&b;</loc></url></urlset>`;
    await expect(parse(lol)).rejects.toThrow('DOCTYPE');
    await expect(parse('<!doctype html><html></html>')).rejects.toThrow('DOCTYPE');
  });

  it('leaves an entity that it does not know as it stands', async () => {
    const { pages } = await parse('<urlset><url><loc>http://a.org/&x;</loc></url></urlset>');
    expect(pages.map(({ url }) => url)).toEqual(['http://a.org/&x;']);
  });

  it('refuses what is no sitemap', async () => {
    await expect(parse('<html></html>')).rejects.toThrow('begins with <html>');
    await expect(parse(`<urlset>${'<a>'.repeat(300_000)}`)).rejects.toThrow('nested too deeply');
    await expect(parse('<')).rejects.toThrow('no root element');
    await expect(parse(Buffer.from([0x1f, 0x8b, 1, 2, 3]))).rejects.toThrow('damaged gzip');
    expect(await parse('')).toEqual({ pages: [], sitemaps: [] });
  });
});
