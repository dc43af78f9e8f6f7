import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createNames } from '#base/net/dns.ts';
import { type NameAnswer, type NameServer, startNameServer } from '#test/base/name-server.ts';
import { url, useScene } from '#test/alerts/scene.ts';

/** Webhooks by a name server that is one, and by addresses some of which are silent. */

const scene = useScene();
const { deliver, listed, make, spent } = scene;

const [swallows, refuses, takes] = ['93.184.215.66', '93.184.215.77', '93.184.215.14'];

let server: NameServer | null = null;
let answerOf: (name: string, kind: 'A' | 'AAAA') => NameAnswer;
let silent: Socket[] = [];

/** One that swallows all that is sent to it: it stays as if its connection were on the way. */
function swallowing(): Socket {
  const socket = connect({ host: 'silent.example', port: 1, lookup: () => undefined });
  silent.push(socket);
  return socket;
}

beforeEach(async () => {
  server = await startNameServer((name, kind) => answerOf(name, kind));
  const names = createNames({ servers: [server.address], hostsFile: '/none', resolvFile: '/none', timeoutMs: 5000 });
  const dial = scene.receiver.outbound.dial.bind(scene.receiver.outbound);
  silent = [];
  Object.assign(scene.receiver.outbound, {
    resolve: names.resolve,
    dial(address: string, port: number) {
      if (address !== swallows && address !== refuses) return dial(address, port);
      scene.receiver.dialed.push(`${address}:${port}`);
      return address === swallows ? swallowing() : connect(1, '127.0.0.1');
    },
  });
});

afterEach(() => server?.close());

async function told(): Promise<unknown> {
  const webhook = await make({ url });
  await scene.api.alerts.raise(spent());
  await deliver();
  return (await listed(webhook))[0];
}

describe('a webhook host that cannot be dialed', () => {
  it.each([
    ['a private address', ['10.0.0.5']],
    ['a private address among public ones', [takes, '192.168.1.1']],
    ['a private address of IPv6 beside a public one', [takes, 'fd00::5']],
    ['this machine', ['127.0.0.1']],
  ])('gets no connection when the name server returns %s', async (_, addresses) => {
    answerOf = () => addresses;
    expect(await told()).toMatchObject({ status: 'pending', last_error: 'not_public' });
    expect(scene.receiver.dialed).toEqual([]);
  });

  it.each([
    ['unknown_host', 'is unknown', []],
    ['unknown_host', 'a name server refuses to tell', 'refused'],
    ['timeout', 'no name server answers', null],
  ] as const)('is recorded as %s when %s', async (error, _, answer) => {
    answerOf = () => answer;
    expect(await told()).toMatchObject({ status: 'pending', last_error: error });
    expect(scene.receiver.dialed).toEqual([]);
    expect(process.getActiveResourcesInfo()).not.toContain('QueryReqWrap');
  });

  it('is resolved once: the checked address is the dialed one', async () => {
    let answers = 0;
    answerOf = (_, kind) => (kind === 'AAAA' ? [] : [(answers += 1) === 1 ? takes : '127.0.0.1']);
    expect(await told()).toMatchObject({ status: 'delivered' });
    expect([answers, scene.receiver.dialed]).toEqual([1, [`${takes}:443`]]);
  });
});

describe('a webhook host with several addresses', () => {
  it.each([
    ['swallows what is sent to it', swallows],
    ['refuses connections', refuses],
  ])('is delivered at the second address when the first one %s', async (_, first) => {
    answerOf = () => [first, takes];
    expect(await told()).toMatchObject({ status: 'delivered' });
    expect(scene.receiver.dialed).toEqual([`${first}:443`, `${takes}:443`]);
    expect(scene.receiver.got).toHaveLength(1);
    expect(silent.every(({ destroyed }) => destroyed)).toBe(true);
  });

  it('is recorded as timeout when all are silent, and no connection stays open', async () => {
    answerOf = () => [swallows, swallows];
    expect(await told()).toMatchObject({ status: 'pending', last_error: 'timeout' });
    expect(silent.map(({ destroyed }) => destroyed)).toEqual([true, true]);
  });

  it('is recorded as unreachable when all refuse', async () => {
    answerOf = () => [refuses, refuses];
    expect(await told()).toMatchObject({ status: 'pending', last_error: 'unreachable' });
  });
});
