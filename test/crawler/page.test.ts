import { describe, expect, it } from 'vitest';
import { parsePage } from '../../crawler-example/page.ts';

const URL_ = 'http://docs.test/a/page.html';
const parse = (html: string | Buffer, charset: string | null = null) =>
  parsePage(Buffer.from(html as string), URL_, charset, 'ebbmark-crawler');

describe('parsePage', () => {
  it('collects links, each once, normalised, in order', () => {
    const { links } = parse(`
      <a href="b.html">b</a> <a href="b.html#part">b again</a> <A HREF='/c.html?utm_source=x'>c</A>
      <area href="d.html"><iframe src="e.html"></iframe><frame src="f.html">
      <link rel="next" href="g.html"><link rel="stylesheet" href="no.css"><link rel="icon" href="no.ico">
      <link rel="alternate" type="application/rss+xml" href="no.rss"><link rel="alternate" hreflang="de" href="h.html">
      <a href="mailto:x@y.z"></a><a href="javascript:void 0"></a><a name="no"></a><a href="page.html#self"></a>
      <script>document.write('<a href="no.html">')</script><!-- <a href="no.html"> --><style>a { b: url(no.html) }</style>
      <a href="i.html?a=1&amp;b=2">entities</a><noscript><a href="j.html"></a></noscript>`);
    expect(links.map((url) => url.replace('http://docs.test', ''))).toEqual([
      '/a/b.html',
      '/c.html',
      '/a/d.html',
      '/a/e.html',
      '/a/f.html',
      '/a/g.html',
      '/a/h.html',
      '/a/i.html?a=1&b=2',
      '/a/j.html',
    ]);
  });

  it('leaves out what rel=nofollow marks', () => {
    expect(parse('<a rel="nofollow" href="b"></a><a rel="noopener NoFollow" href="c"></a>').links).toEqual([]);
  });

  it.each([
    ['<meta name="robots" content="nofollow">', false, true],
    ['<meta name="ROBOTS" content="NONE">', true, true],
    ['<meta name="ebbmark-crawler" content="noindex">', true, false],
    ['<meta name="otherbot" content="noindex,nofollow">', false, false],
  ])('%s', (html, noindex, nofollow) => {
    const page = parse(`${html}<a href="b"></a>`);
    expect(page.robots).toEqual({ noindex, nofollow });
    expect(page.links).toHaveLength(nofollow ? 0 : 1);
  });

  it('resolves by the first base element, for links before it too', () => {
    const page = parse('<a href="b"></a><base href="/x/"><base href="/y/"><a href="c"></a>');
    expect(page.links).toEqual(['http://docs.test/x/b', 'http://docs.test/x/c']);
    expect(parse('<base href="javascript:1"><a href="b"></a>').links).toEqual(['http://docs.test/a/b']);
  });

  it('reads canonical, title, refresh', () => {
    const page = parse(`<title>\n A &amp;\t B </title><link rel="canonical" href="/c"><link rel=canonical href="/d">
      <meta http-equiv="Refresh" content="5; url='r.html'"><svg><title>no</title></svg>`);
    expect(page.canonical).toBe('http://docs.test/c');
    expect(page.title).toBe('A & B');
    expect(page.links).toEqual(['http://docs.test/a/r.html']);
    expect(parse('<svg><title>no</title></svg><title></title>').title).toBeNull();
    expect(parse(`<title>${'x'.repeat(10_000)}</title>`).title).toHaveLength(300);
  });

  it('decodes by mark, header, declaration', () => {
    const title = (bytes: Buffer, charset: string | null = null) => parse(bytes, charset).title;
    const latin1 = Buffer.from('<title>\xe4</title>', 'latin1');
    expect(title(Buffer.from('<title>ä</title>'))).toBe('ä');
    expect(title(latin1, 'iso-8859-1')).toBe('ä');
    expect(title(Buffer.concat([Buffer.from('<meta charset="windows-1252">'), latin1]))).toBe('ä');
    expect(
      title(Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from('<title>ä</title>', 'utf16le')]), 'latin1'),
    ).toBe('ä');
    expect(title(Buffer.from('<title>ä</title>'), 'no-such-charset')).toBe('ä');
  });

  it('bears anything', () => {
    for (const html of ['', '<', '<a href', '<a href="', '<title', '</p></p>', '\0\0\0', '<a href="http://[">']) {
      expect(parse(html).links).toEqual([]);
    }
    // 1.6 MB that would take the parser minutes to close.
    expect(parse(`<a href="x">${'<b>'.repeat(500_000)}<a href="y">`).links).toEqual(['http://docs.test/a/x']);
    const many = Array.from({ length: 20_000 }, (_, i) => `<a href="${i}"></a>`).join('');
    expect(parse(many).links).toHaveLength(10_000);
  });
});
