import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeAddress, parseCassandraAddress, readAccess } from '../../src/store/cassandra/address.ts';

describe('the address of a keyspace', () => {
  it('has defaults for everything but hosts and keyspace', () => {
    expect(parseCassandraAddress('cassandra://db/ebbmark')).toEqual({
      hosts: ['db'],
      port: 9042,
      keyspace: 'ebbmark',
      dc: null,
      replication: null,
      consistency: 'local',
    });
  });

  it('takes several hosts, with one port for all', () => {
    expect(parseCassandraAddress('cassandra://a.example,10.0.0.2,[2001:db8::1]:9043/q')).toMatchObject({
      hosts: ['a.example', '10.0.0.2', '[2001:db8::1]'],
      port: 9043,
    });
    expect(parseCassandraAddress('cassandra://a:9044,b:9044/q')).toMatchObject({ hosts: ['a', 'b'], port: 9044 });
  });

  it('takes parameters', () => {
    expect(parseCassandraAddress('cassandra://a/q?dc=eu-west_1&replication=3&consistency=global')).toMatchObject({
      dc: 'eu-west_1',
      replication: 3,
      consistency: 'global',
    });
    expect(parseCassandraAddress('cassandra://a/q?replication=dc1:3,dc2:2').replication).toEqual({ dc1: 3, dc2: 2 });
  });

  it('is shown in short, without the default port', () => {
    const short = (text: string) => describeAddress(parseCassandraAddress(text));
    expect(short('cassandra://a:9042,b/q?dc=dc1')).toBe('cassandra://a,b/q');
    expect(short('cassandra://a,b:9043/q')).toBe('cassandra://a,b:9043/q');
  });

  it.each([
    ['cassandra:', /address of a keyspace/],
    ['cassandra:///q', /address of a keyspace/],
    ['http://a/q', /address of a keyspace/],
    ['cassandra://a', /keyspace: a letter/],
    ['cassandra://a/Q', /"Q".*keyspace/],
    ['cassandra://a/1q', /keyspace/],
    ['cassandra://a/q/r', /keyspace/],
    [`cassandra://a/${'q'.repeat(49)}`, /keyspace/],
    ['cassandra://a,,b/q', /"" is not a host/],
    ['cassandra://a:0/q', /"a:0" is not a host/],
    ['cassandra://a:70000/q', /host/],
    ['cassandra://a:b/q', /host/],
    ['cassandra://a:9042,b:9043/q', /one port for all/],
    ['cassandra://2001:db8::1/q', /IPv6 in brackets/],
    ['cassandra://a/q?port=1', /"port" is not one of dc, replication, consistency/],
    ['cassandra://a/q?dc=a&dc=b', /given once/],
    ["cassandra://a/q?dc=a'b", /name of a datacenter/],
    ['cassandra://a/q?replication=0', /copies from 1 to 99/],
    ['cassandra://a/q?replication=three', /"three" is not a replication/],
    ['cassandra://a/q?replication=dc1:3,dc1:2', /replication/],
    ['cassandra://a/q?consistency=one', /local or global/],
  ])('refuses %s and says what would be right', (text, message) => {
    expect(() => parseCassandraAddress(text)).toThrow(message);
    expect(() => parseCassandraAddress(text)).toThrow(/for example: /);
  });

  it('refuses user and password, and does not show them', () => {
    const parse = () => parseCassandraAddress('cassandra://me:secret@a/q');
    expect(parse).toThrow(/without user and password/);
    expect(parse).not.toThrow(/secret/);
  });
});

describe('access', () => {
  let directory: string;
  const file = (name: string) => join(directory, name);
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'ebbmark-access-'));
    for (const name of ['ca', 'cert', 'key']) await writeFile(file(name), `pem of ${name}`);
    await writeFile(file('password'), 'se cret \n');
  });
  afterAll(() => rm(directory, { recursive: true }));

  it('is open where nothing is given', () => {
    expect(readAccess({})).toEqual({});
  });

  it('takes a password, or a file with one', () => {
    expect(readAccess({ user: 'me', password: 'p' }).credentials).toEqual({ username: 'me', password: 'p' });
    const { credentials } = readAccess({ user: 'me', passwordFile: file('password') });
    expect(credentials).toEqual({ username: 'me', password: 'se cret ' });
  });

  it('checks the certificates of nodes, and shows its own', () => {
    expect(readAccess({ tlsCa: file('ca') }).sslOptions).toEqual({ ca: 'pem of ca', rejectUnauthorized: true });
    const tls = { tlsCa: file('ca'), tlsCert: file('cert'), tlsKey: file('key') };
    expect(readAccess(tls).sslOptions).toMatchObject({ ca: 'pem of ca', cert: 'pem of cert', key: 'pem of key' });
    expect(readAccess({ ...tls, tlsVerifyHost: false }).sslOptions).toMatchObject({
      rejectUnauthorized: true,
      checkServerIdentity: expect.any(Function),
    });
  });

  it.each([
    [{ user: 'me' }, /user.*together with a password/],
    [{ password: 'p' }, /together with a password/],
    [{ user: 'me', password: 'p', passwordFile: '/x' }, /given once/],
    [{ user: 'me', passwordFile: '/nowhere/at-all' }, /"\/nowhere\/at-all" is not a file that can be read \(ENOENT\)/],
    [{ tlsCert: '/x' }, /together with its key/],
    [{ tlsKey: '/x' }, /together with its key/],
    [{ tlsCert: '/x', tlsKey: '/y' }, /tlsCa/],
  ])('refuses %o', (given, message) => {
    expect(() => readAccess(given)).toThrow(message);
  });
});
