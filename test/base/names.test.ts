import { lookup } from 'node:dns/promises';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createNames, type Names } from '#base/net/dns.ts';
import { type NameAnswer, type NameServer, startNameServer } from '#test/base/name-server.ts';

let folder = '';
let hostsFile = '';
let resolvFile = '';
const servers: NameServer[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'hg-names-'));
  [hostsFile, resolvFile] = [join(folder, 'hosts'), join(folder, 'resolv.conf')];
  await writeFile(hostsFile, '');
  await writeFile(resolvFile, '');
});

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
  await rm(folder, { recursive: true });
});

async function open(
  answerOf: (name: string, kind: 'A' | 'AAAA') => NameAnswer,
  timeoutMs = 200,
): Promise<Names & { readonly asked: string[] }> {
  const server = await startNameServer(answerOf);
  servers.push(server);
  const { asked } = server;
  return { ...createNames({ servers: [server.address], hostsFile, resolvFile, timeoutMs }), asked };
}

const known = (hosts: Readonly<Record<string, readonly string[]>>) => (name: string) => hosts[name] ?? [];

describe('the lookup of a name that fails', () => {
  it('throws for an unknown name, an invalid name, and one that the name server refuses', async () => {
    const names = await open((name) => (name === 'secret.example' ? 'refused' : []));
    await expect(names.resolve('gone.example')).rejects.toMatchObject({ code: 'ENOTFOUND' });
    await expect(names.resolve('secret.example')).rejects.toMatchObject({ code: 'EREFUSED' });
    for (const none of ['', '.', 'a'.repeat(300), `${'a'.repeat(64)}.example`, 'a..b']) {
      await expect(names.resolve(none)).rejects.toMatchObject({ code: expect.stringMatching(/^ENOTFOUND|EBADNAME$/) });
    }
  });

  it('times out after two tries of the first name without an answer, and tries no search domain', async () => {
    await writeFile(resolvFile, 'search one.example two.example\n');
    const names = await open(() => null);
    await expect(names.resolve('hooks.example')).rejects.toMatchObject({ code: 'ETIMEOUT' });
    expect(names.asked.toSorted()).toEqual(['A', 'A', 'AAAA', 'AAAA'].map((kind) => `${kind} hooks.example`));
  });

  it('ends when the caller aborts, together with its queries', async () => {
    const names = await open(() => null);
    const asking = new AbortController();
    const question = names.resolve('hooks.example', asking.signal);
    await expect.poll(() => names.asked.length).toBe(2);
    asking.abort(new Error('given up'));
    await expect(question).rejects.toThrow('given up');
    expect(process.getActiveResourcesInfo()).not.toContain('QueryReqWrap');
    await expect(names.resolve('hooks.example', asking.signal)).rejects.toThrow('given up');
    expect(names.asked).toHaveLength(2);
  });
});

describe('the lookup of a name', () => {
  it('returns all addresses of both families, alternating', async () => {
    const addresses = ['192.0.2.1', '192.0.2.2', '2001:db8::1', '192.0.2.3'];
    const names = await open(known({ 'hooks.example': addresses, 'six.example': ['2001:db8::6'] }));
    const inTurn = ['192.0.2.1', '2001:db8::1', '192.0.2.2', '192.0.2.3'];
    expect(await names.resolve('hooks.example')).toEqual(inTurn);
    expect(await names.resolve('HOOKS.example.')).toEqual(inTurn);
    expect(await names.resolve('six.example')).toEqual(['2001:db8::6']);
  });

  it('returns one family when the name server does not answer for the other', async () => {
    const names = await open((_, kind) => (kind === 'A' ? ['192.0.2.1'] : null));
    expect(await names.resolve('hooks.example')).toEqual(['192.0.2.1']);
  });

  it('returns the current addresses, without a cache', async () => {
    let address = '192.0.2.1';
    const names = await open(() => [address]);
    expect(await names.resolve('hooks.example')).toEqual(['192.0.2.1']);
    address = '10.0.0.1';
    expect(await names.resolve('hooks.example')).toEqual(['10.0.0.1']);
  });

  it("uses the current hosts file and the host's own name without asking a name server", async () => {
    const names = await open(() => ['192.0.2.1']);
    await writeFile(
      hostsFile,
      '10.0.0.7 Hooks hooks.example # of ours\nfd00::7\thooks\n10.0.0.8 hooks\n#10.0.0.9 not\nx y\n',
    );
    expect(await names.resolve('hooks')).toEqual(['10.0.0.7', 'fd00::7', '10.0.0.8']);
    expect(await names.resolve('hooks.example')).toEqual(['10.0.0.7']);
    await writeFile(hostsFile, '10.0.0.70 hooks\n');
    expect(await names.resolve('hooks')).toEqual(['10.0.0.70']);
    expect(await names.resolve('localhost')).toEqual(['127.0.0.1', '::1']);
    expect(await names.resolve('any.localhost')).toEqual(['127.0.0.1', '::1']);
    expect(await names.resolve('192.0.2.9')).toEqual(['192.0.2.9']);
    expect(names.asked).toEqual([]);
    await rm(hostsFile);
    expect(await names.resolve('hooks')).toEqual(['192.0.2.1']);
  });

  it('uses a search domain when the name itself does not exist', async () => {
    await writeFile(resolvFile, 'domain old.example\nnameserver 192.0.2.53\nsearch one.example two.example.\n');
    const names = await open(
      known({ 'hooks.two.example': ['10.0.0.2'], 'db.one.example': ['10.0.0.1'], db: ['10.0.0.3'] }),
    );
    expect(await names.resolve('hooks')).toEqual(['10.0.0.2']);
    expect(await names.resolve('db')).toEqual(['10.0.0.3']);
    await expect(names.resolve('hooks.')).rejects.toMatchObject({ code: 'ENOTFOUND' });
  });

  it('uses a search domain when name servers refuse names without a dot', async () => {
    await writeFile(resolvFile, 'search one.example two.example\n');
    const hosts = known({ 'hooks.two.example': ['10.0.0.2'] });
    const names = await open((name) => (name.includes('.') ? hosts(name) : 'refused'));
    expect(await names.resolve('hooks')).toEqual(['10.0.0.2']);
    await expect(names.resolve('other')).rejects.toMatchObject({ code: 'EREFUSED' });
  });
});

it('delays no other lookup while name servers are silent', async () => {
  const silent = await open(() => null, 60_000);
  const asking = new AbortController();
  const ends = Array.from({ length: 32 }, (_, n) => silent.resolve(`${n}.example`, asking.signal).catch(() => n));
  await expect.poll(() => silent.asked.length).toBe(64);
  // Few threads do both the system's look-ups and the reading of files.
  await Promise.all(Array.from({ length: 8 }, () => lookup('localhost')));
  const names = await open(() => ['192.0.2.1']);
  expect(await names.resolve('hooks.example')).toEqual(['192.0.2.1']);
  asking.abort(new Error('given up'));
  expect(await Promise.all(ends)).toHaveLength(32);
});
