import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addressFault, parseHostsFile, parseResolveRule } from '../../crawler-example/address-guard.ts';
import { newFetcher, serve, site, type Web } from './support/web.ts';

describe('addressFault', () => {
  it.each([
    '8.8.8.8',
    '93.184.216.34',
    '2606:4700::1111',
    '2a00:1450:4001::1',
    '::ffff:8.8.8.8',
    '::ffff:808:808',
    '64:ff9b::808:808',
  ])('%s is public', (address) => {
    expect(addressFault(address)).toBeNull();
  });

  it.each([
    ['0.0.0.0', 'unspecified'],
    ['0.1.2.3', 'unspecified'],
    ['10.0.0.1', 'private'],
    ['100.64.0.1', 'carrierGradeNat'],
    ['127.0.0.1', 'loopback'],
    ['127.255.255.254', 'loopback'],
    ['169.254.169.254', 'linkLocal'],
    ['172.16.0.1', 'private'],
    ['172.31.255.255', 'private'],
    ['192.0.0.1', 'reserved'],
    ['192.0.2.1', 'reserved'],
    ['192.168.1.1', 'private'],
    ['198.18.0.1', 'reserved'],
    ['203.0.113.1', 'reserved'],
    ['224.0.0.1', 'multicast'],
    ['240.0.0.1', 'reserved'],
    ['255.255.255.255', 'broadcast'],
    ['::', 'unspecified'],
    ['::1', 'loopback'],
    ['::7f00:1', 'unassigned'],
    ['::ffff:127.0.0.1', 'loopback'],
    ['::ffff:7f00:1', 'loopback'],
    ['::ffff:a9fe:a9fe', 'linkLocal'],
    ['::ffff:10.0.0.1', 'private'],
    ['::ffff:0:127.0.0.1', 'rfc6145'],
    ['64:ff9b::7f00:1', 'loopback'],
    ['64:ff9b::a9fe:a9fe', 'linkLocal'],
    ['64:ff9b:1::808:808', 'rfc6052'],
    ['2002:7f00:1::', '6to4'],
    ['2001:0:1::', 'teredo'],
    ['2001:db8::1', 'reserved'],
    ['fc00::1', 'uniqueLocal'],
    ['fd12:3456::1', 'uniqueLocal'],
    ['fe80::1', 'linkLocal'],
    ['fe80::1%eth0', 'linkLocal'],
    ['fec0::1', 'deprecatedSiteLocal'],
    ['ff02::1', 'multicast'],
    ['4000::1', 'unassigned'],
    ['not an address', 'unreadable'],
    ['', 'unreadable'],
  ])('%s is %s', (address, range) => {
    expect(addressFault(address)).toBe(range);
  });
});

describe('resolve rules', () => {
  it('are read', () => {
    expect(parseResolveRule('*.Docs.test:127.0.0.1')).toEqual({ host: '*.docs.test', address: '127.0.0.1' });
    expect(parseResolveRule('a.test:::1')).toEqual({ host: 'a.test', address: '::1' });
    expect(parseHostsFile('# none\n127.0.0.1 a b # c\n\n::1\tc')).toEqual([
      { host: 'a', address: '127.0.0.1' },
      { host: 'b', address: '127.0.0.1' },
      { host: 'c', address: '::1' },
    ]);
    for (const text of ['', 'a', 'a:', ':1.2.3.4', 'a:b', 'a:127.1', 'a:80:1.2.3.4']) {
      expect(() => parseResolveRule(text)).toThrow('for example');
    }
  });
});

describe('a guarded fetch', () => {
  const ALL = { maxBytes: 1_000, over: 'refuse', keep: () => true } as const;
  let web: Web;
  beforeAll(async () => {
    web = await serve(site({ '/': { body: 'secret' } }));
  });
  afterAll(() => web.close());

  const get = async (host: string, addresses: readonly string[] = ['127.0.0.1'], allowPrivate = false) => {
    const fetcher = newFetcher({ allowPrivate, addressesOf: async () => addresses, connectTimeoutMs: 500 });
    const got = await fetcher.get(`http://${host}:${web.port}/`, ALL);
    await fetcher.close();
    return got;
  };

  it.each([
    '127.0.0.1',
    '127.1',
    '2130706433',
    '0x7f000001',
    '0177.0.0.1',
    '[::ffff:127.0.0.1]',
    '[::1]',
    '0.0.0.0',
    '[::]',
  ])('does not reach %s', async (host) => {
    expect(await get(new URL(`http://${host}/`).hostname)).toMatchObject({ kind: 'refused' });
    expect(web.asked).toEqual([]);
  });

  it('does not reach a name that resolves to a private address', async () => {
    expect(await get('inner.example.org')).toMatchObject({
      kind: 'refused',
      reason: 'address refused: 127.0.0.1 is loopback',
    });
    expect(await get('inner.example.org', ['::ffff:7f00:1'])).toMatchObject({ kind: 'refused' });
  });

  it('does not reach a name of which one address is private', async () => {
    expect(await get('mixed.example.org', ['93.184.216.34', '127.0.0.1'])).toMatchObject({ kind: 'refused' });
    expect(web.asked).toEqual([]);
  });

  it('asks anew at each connection, so that a name which turns private gains nothing', async () => {
    const answers = [['127.0.0.1'], ['10.0.0.1']];
    let asked = 0;
    const fetcher = newFetcher({ allowPrivate: false, addressesOf: async () => answers[asked++] ?? [] });
    const url = `http://rebind.example.org:${web.port}/`;
    expect(await fetcher.get(url, ALL)).toMatchObject({ kind: 'refused' });
    expect(await fetcher.get(url, ALL)).toMatchObject({ kind: 'refused', reason: expect.stringContaining('10.0.0.1') });
    expect(asked).toBe(2);
    await fetcher.close();
  });

  it('reaches them where it is allowed, names answered from rules too', async () => {
    expect(await get('inner.example.org', ['127.0.0.1'], true)).toMatchObject({ kind: 'response', status: 200 });
    const fetcher = newFetcher({ resolve: [parseResolveRule('*.docs.test:127.0.0.1')] });
    expect(await fetcher.get(`http://a.b.docs.test:${web.port}/`, ALL)).toMatchObject({ kind: 'response' });
    await fetcher.close();
    expect(web.asked.map(({ host }) => host)).toEqual([`inner.example.org:${web.port}`, `a.b.docs.test:${web.port}`]);
  });

  it('says when a name has no address', async () => {
    expect(await get('none.example.org', [])).toEqual({ kind: 'network', reason: 'ENOTFOUND', retry: true });
  });
});
