/** API keys from the first one on: made on the store, asked for by the server, shown by commands. */
import { existsSync } from 'node:fs';
import { chmod, stat, writeFile } from 'node:fs/promises';
import Database from 'better-sqlite3';
import { describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.ts';
import { run } from './support/run.ts';
import { type Served, servers } from './support/servers.ts';

const { beside, newStore, serve: serveWith } = servers('keys');

const ASKING = ['--require-keys', 'on', '--log-level', 'trace', '--store'];
const SERVE = ['serve', '--listen', '127.0.0.1:0', ...ASKING];
const serve = (store: string): Promise<Served> => serveWith([...ASKING, store]);

interface Told {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs a command in this process: one of its own for each would take most of the time of these tests. */
async function ebbmark(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Told> {
  let [out, err] = ['', ''];
  const spies = [
    vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
      out += text;
      return true;
    }),
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
      err += text;
      return true;
    }),
  ];
  const code = await main(args, env);
  for (const spy of spies) spy.mockRestore();
  const exitCode = code ?? Number(process.exitCode ?? 0);
  process.exitCode = undefined;
  return { code: exitCode, out, err };
}

const ALL = ['--role', 'admin', '--role', 'produce', '--role', 'consume'];
const create = (...args: readonly string[]): Promise<Told> => ebbmark(['keys', 'create', ...args]);

/** Makes the first key of a store. */
async function firstKey(store: string, ...args: readonly string[]): Promise<string> {
  const { code, out } = await create('first', ...(args.length === 0 ? ALL : args), '--store', store);
  expect(code).toBe(0);
  return out.trim();
}

describe('a server that asks for keys', () => {
  it('does not start without one, says what to do next, and has made nothing', async () => {
    const store = newStore();
    const refused = await run([...SERVE, store]);
    expect(refused).toMatchObject({ code: 1, out: '' });
    expect(refused.err).toContain(`ebbmark keys create me ${ALL.join(' ')} --store '${store}'`);
    await expect(stat(store.slice('sqlite:'.length))).rejects.toThrow('ENOENT');

    const made = await create('first', ...ALL, '--store', store);
    expect(made).toMatchObject({ code: 0, out: expect.stringMatching(/^ebb_[0-9a-f]{12}_[0-9a-f]{72}\n$/) });
    expect(made.err).toMatch(
      /^Created a new store at .*\nKey [0-9a-f]{12}, for all: produce, consume, admin\. It is shown/,
    );
    const { url } = await serve(store);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect((await fetch(`${url}/v1/topics`)).status).toBe(401);
  });

  it('does not start where the only one was revoked', async () => {
    const store = newStore();
    const key = await firstKey(store);
    const revoked = await ebbmark(['keys', 'revoke', key.split('_')[1]!, '--store', store]);
    expect(revoked).toMatchObject({ code: 0, out: expect.stringContaining('(first) is revoked.') });
    const { code, err } = await run([...SERVE, store]);
    expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining('there is none that is good') });
    // It has let go of the store.
    await firstKey(store);
    await serve(store);
  });

  it('ends, and lets go of the store, where its keys cannot be read', async () => {
    const store = newStore();
    await firstKey(store);
    const path = store.slice('sqlite:'.length);
    const db = new Database(path);
    db.exec("UPDATE api_key SET roles = 'x'");
    db.close();
    expect(await run([...SERVE, store])).toMatchObject({ code: 1, signal: null });
    expect(existsSync(`${path}-wal`)).toBe(false);
  });

  it('starts where its cluster is down, and lets nobody in until it knows who may', async () => {
    // Port 9 of loopback: nothing listens there.
    const server = await serve('cassandra://127.0.0.1:9/none');
    expect(server.out()).toContain('whether there is one is known once the store is reached');
    for (const headers of [{}, { authorization: 'Bearer x' }]) {
      const answer = await fetch(`${server.url}/v1/topics`, { headers });
      expect(answer.status).toBe(503);
      expect(await answer.json()).toMatchObject({ code: 'store-unavailable' });
    }
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200);
  });
});

describe('commands', () => {
  it('show the key of the environment, or of a file, and never tell it', async () => {
    const store = newStore();
    const key = await firstKey(store);
    const server = await serve(store);
    const file = beside('key');
    await writeFile(file, `${key}\n`);
    await chmod(file, 0o600);
    const ask = (args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Told> =>
      ebbmark(args, { EBBMARK_URL: server.url, ...env });

    const without = await ask(['topics']);
    expect(without).toMatchObject({ code: 1, out: '' });
    expect(without.err).toMatch(/^unauthenticated: .*\nGive an API key: {3}EBBMARK_KEY/);
    expect(await ask(['enqueue', 'a', '1'], { EBBMARK_KEY: key })).toMatchObject({ code: 0, err: '' });
    expect(await ask(['lease', 'a'], { EBBMARK_KEY_FILE: file })).toMatchObject({ code: 0, err: '' });
    expect(await ask(['status'], { EBBMARK_KEY: ` ${key} ` })).toMatchObject({ code: 0 });
    const copy = beside('copy.db');
    expect((await ask(['backup', copy])).err).toMatch(/^unauthenticated: /);
    expect(await ask(['backup', copy], { EBBMARK_KEY: key })).toMatchObject({ code: 0, err: '' });

    for (const env of [
      { EBBMARK_KEY: key, EBBMARK_KEY_FILE: file },
      { EBBMARK_KEY: key.slice(0, -1) },
      { EBBMARK_KEY_FILE: beside('none') },
    ]) {
      const { code, out, err } = await ask(['topics'], env);
      expect({ code, out }).toEqual({ code: 2, out: '' });
      expect(err).toMatch(/^invalid-input: EBBMARK_KEY/);
      expect(err).not.toContain(key.slice(17, -8));
    }
    server.child.kill('SIGTERM');
    const { out, err } = await server.ended;
    expect(out + err).not.toContain(key.slice(17, -8));
  });

  it('make, list and revoke keys of a running server, for who shows an admin key', async () => {
    const store = newStore();
    const admin = await firstKey(store);
    const server = await serve(store);
    const ask = (args: readonly string[], key = admin): Promise<Told> =>
      ebbmark(args, { EBBMARK_URL: server.url, EBBMARK_KEY: key });

    const made = await ask(
      [
        'keys',
        'create',
        'mailer',
        '--role',
        'produce',
        '--prefix',
        'mail/',
        '--prefix',
        'news/',
        '--expires',
        '1h',
      ].concat(['--rate', '100', '--burst', '200', '--description', 'of the shop', '--json']),
    );
    expect(made).toMatchObject({ code: 0, err: '' });
    const { key, ...shown } = JSON.parse(made.out);
    expect(shown).toMatchObject({
      name: 'mailer',
      description: 'of the shop',
      roles: ['produce'],
      prefixes: ['mail/', 'news/'],
      rate: { perSecond: 100, burst: 200 },
      expiresAt: shown.createdAt + 3_600_000,
    });
    expect(await ask(['enqueue', 'mail/a', '1'], key)).toMatchObject({ code: 0 });
    const outside = await ask(['enqueue', 'other', '1'], key);
    expect(outside).toMatchObject({ code: 1, err: expect.stringContaining('begin with "mail/" or "news/"') });
    expect((await ask(['keys', 'list'], key)).err).toContain('forbidden');

    const listed = await ask(['keys', 'list']);
    expect(listed.out).toMatch(new RegExp(`^${shown.id}  mailer  produce +mail/\\* news/\\*  100/s, 200 at once`, 'm'));
    expect(JSON.parse((await ask(['keys', 'list', '--json'])).out).keys).toContainEqual(shown);
    const first = await ask(['keys', 'list', '--limit', '1']);
    expect(first.err).toMatch(/^There are more: --limit, or --after [0-9a-f]{12}$/m);

    const inUse = await ebbmark(['keys', 'list', '--store', store]);
    expect(inUse).toMatchObject({
      code: 1,
      err: expect.stringContaining('is in use. Ask its server, with an admin key'),
    });

    expect(await ask(['keys', 'revoke', shown.id])).toMatchObject({ code: 0 });
    expect((await ask(['enqueue', 'mail/a', '1'], key)).err).toContain('unauthenticated');
    // The key itself, as it was found where it should not be: its secret goes nowhere.
    const leaked = JSON.parse((await ask(['keys', 'create', 'leaked', '--role', 'consume', '--json'])).out);
    const revoked = await ask(['keys', 'revoke', leaked.key]);
    expect(revoked).toMatchObject({ code: 0, out: `${leaked.id} (leaked) is revoked.\n`, err: '' });
    expect(await ask(['keys', 'revoke', 'nobody'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('key-not-found'),
    });

    server.child.kill('SIGTERM');
    const { out } = await server.ended;
    expect(out).toMatch(new RegExp(`"key":"${shown.id}","name":"mailer","by":"[0-9a-f]{12}","msg":"a key was made"`));
    expect(out).toMatch(
      new RegExp(`"key":"${shown.id}","name":"mailer","by":"[0-9a-f]{12}","msg":"a key was revoked"`),
    );
    expect(out).not.toContain(key.slice(17, -8));
    const afterwards = await ebbmark(['keys', 'list', '--store', store]);
    expect(afterwards.out).toMatch(new RegExp(`^${shown.id} .*  revoked$`, 'm'));
  });

  it.each([
    [['x'], /--role <role>.* not specified/],
    [['x', '--role', 'root'], /not one of produce, consume, admin; for example: consume/],
    [['x', '--role', 'admin', '--prefix', 'a*'], /free of '\*'/],
    [['x', '--role', 'admin', '--rate', '0'], /positive integer/],
    [['x', '--role', 'admin', '--expires', 'soon'], /a number with a unit/],
    [['x', '--role', 'admin', '--burst', '5'], /--burst goes with --rate/],
    [['', '--role', 'admin'], /\/name: "" is not a text of 1 to 128 bytes/],
  ])('refuse %j', async (args, message) => {
    const { code, out, err } = await create(...args, '--store', newStore());
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(message);
  });

  it('list and revoke nothing where there is no store', async () => {
    const { code, err } = await ebbmark(['keys', 'list', '--store', newStore()]);
    expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining('There is no store at') });
  });
});
