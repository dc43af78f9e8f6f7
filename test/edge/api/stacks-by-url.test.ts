import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Outbound } from '#core/stacks/stacks.ts';
import { type PackageServer, startPackageServer } from '#test/stacks/package-server.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

const zip = packOf({ 'manifest.yaml': 'title: From afar' });
const redirect = (location: string) => (response: ServerResponse) => {
  response.writeHead(302, { location }).end();
};

/** It swallows all that is sent to it. */
const silentAddress = '93.184.215.66';

let server: PackageServer | null = null;
const outbound: Outbound = {
  resolve: (...asked) => current().outbound.resolve(...asked),
  dial: (address, port) =>
    address === silentAddress
      ? connect({ host: 'silent.example', port: 1, lookup: () => undefined })
      : current().outbound.dial(address, port),
};
function current(): PackageServer {
  if (server === null) throw new Error('the server is started before the tests');
  return server;
}

const api = useApi({ downloads: { outbound, timeoutMs: 2000 } });

beforeAll(async () => {
  server = await startPackageServer(
    {
      'packages.example': ['93.184.215.14'],
      'other.example': ['93.184.215.15'],
      'half.example': [silentAddress, '93.184.215.15'],
      'silent.example': [silentAddress],
      'inside.example': ['10.0.0.5'],
      'both.example': ['93.184.215.14', '127.0.0.1'],
      'mapped.example': ['::ffff:169.254.169.254'],
      'nat64.example': ['64:ff9b::7f00:1'],
      'shared.example': ['100.64.0.1'],
      'azure.example': ['168.63.129.16'],
      'unique.example': ['fd00:ec2::254'],
      localhost: ['127.0.0.1'],
    },
    {
      '/queue.zip': (response) => response.end(zip),
      '/moved': redirect('/queue.zip'),
      '/elsewhere': redirect('https://other.example/queue.zip'),
      '/to-inside': redirect('https://inside.example/queue.zip'),
      '/to-literal': redirect('https://[::1]/queue.zip'),
      '/to-http': redirect('http://packages.example/queue.zip'),
      '/to-file': redirect('file:///etc/passwd'),
      '/to-port': redirect('https://packages.example:22/'),
      '/around': redirect('/around'),
      '/large': (response) => {
        response.writeHead(200, { 'content-length': 20 * 1024 * 1024 });
        response.write('PK');
      },
      '/endless': (response) => {
        const part = Buffer.alloc(1024 * 1024, 'PK');
        const send = (): void => void (response.destroyed || response.write(part, send));
        send();
      },
      '/stalls': (response) => void response.write('PK'),
      '/silent': () => undefined,
      '/upgraded': ({ socket }) =>
        void socket?.write('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n'),
      '/broken': (response) => {
        response.writeHead(200, { 'content-length': 1000 });
        response.write('PK');
        setTimeout(() => response.destroy(), 50);
      },
      '/encoded': (response) => response.writeHead(200, { 'content-encoding': 'gzip' }).end(zip),
      '/page': (response) => response.end('<html>'),
      '/error': (response) => response.writeHead(500).end('a secret of the server'),
    },
  );
});
afterAll(() => server?.close());

const push = (url: string, fields: object = {}): Promise<Answer> =>
  api().ask('/v1/stacks', { body: { url, ...fields } });

describe('a rejected package URL', () => {
  it.each([
    ['http://packages.example/queue.zip', 'https://'],
    ['file:///etc/passwd', 'https://'],
    ['ftp://packages.example/x', 'https://'],
    ['queue.zip', 'must be a URL'],
    ['https://', 'must be a URL'],
    ['https://user:password@packages.example/queue.zip', 'a user or a password'],
    ['https://packages.example:8443/queue.zip', 'no port other than 443'],
    ['https://127.0.0.1/', 'must be a public address'],
    ['https://2130706433/', 'must be a public address'],
    ['https://0x7f.1/', 'must be a public address'],
    ['https://0177.0.0.1/', 'must be a public address'],
    ['https://0.0.0.0/', 'must be a public address'],
    ['https://[::]/', 'must be a public address'],
    ['https://[::1]/', 'must be a public address'],
    ['https://[::ffff:127.0.0.1]/', 'must be a public address'],
    ['https://[64:ff9b::7f00:1]/', 'must be a public address'],
    ['https://[fe80::1]/', 'must be a public address'],
    ['https://[fd00::1]/', 'must be a public address'],
    ['https://[2002:7f00:1::]/', 'must be a public address'],
    ['https://10.1.2.3/', 'must be a public address'],
    ['https://172.16.0.1/', 'must be a public address'],
    ['https://192.168.1.1/', 'must be a public address'],
    ['https://100.64.0.1/', 'must be a public address'],
    ['https://169.254.169.254/latest/meta-data/', 'must be a public address'],
    ['https://168.63.129.16/', 'must be a public address'],
    ['https://224.0.0.1/', 'must be a public address'],
    ['https://255.255.255.255/', 'must be a public address'],
    ['https://localhost/', 'not public'],
    ['https://inside.example/queue.zip', 'not public'],
    ['https://both.example/queue.zip', 'not public'],
    ['https://mapped.example/', 'not public'],
    ['https://nat64.example/', 'not public'],
    ['https://shared.example/', 'not public'],
    ['https://azure.example/', 'not public'],
    ['https://unique.example/', 'not public'],
    ['https://nowhere.example/', 'has a host name that cannot be resolved'],
  ])('returns 422 without a connection to a private address: %s', async (url, message) => {
    const before = current().dialed.length;
    const { status, body } = await push(url);
    expect([status, body.error.code]).toEqual([422, 'PACKAGE_INVALID']);
    expect(body.error.details).toContainEqual({ field: 'url', message: expect.stringContaining(message) });
    expect(current().dialed.length).toBe(before);
  });

  it.each([
    ['/to-inside', 'has a host whose address is not public'],
    ['/to-literal', 'redirected to an address that must be a public address'],
    ['/to-http', 'redirected to an address that must begin with https://'],
    ['/to-file', 'redirected to an address that must begin with https://'],
    ['/to-port', 'redirected to an address that must use no port other than 443'],
    ['/around', 'redirected more than 3 times'],
    ['/stalls', 'within 2 seconds'],
    ['/silent', 'within 2 seconds'],
    ['/broken', 'closed the connection before'],
    ['/upgraded', 'is unreachable'],
    ['/encoded', 'a content encoding'],
    ['/error', 'status 500'],
    ['/nothing', 'status 404'],
  ])(
    'returns 422 after its redirect or response, without a connection to a private address: %s',
    async (path, message) => {
      const { status, body } = await push(`https://packages.example${path}`);
      expect([status, body.error.details]).toEqual([
        422,
        [{ field: 'url', message: expect.stringContaining(message) }],
      ]);
      expect(JSON.stringify(body)).not.toContain('secret');
      expect(current().dialed.every((address) => address.startsWith('93.184.215.'))).toBe(true);
    },
  );

  it.each(['/large', '/endless'])('returns 413 when the package is too large: %s', async (path) => {
    const { status, body } = await push(`https://packages.example${path}`);
    expect([status, body.error.code]).toEqual([413, 'PACKAGE_TOO_LARGE']);
  });

  it('returns 422 when the response is not a zip', async () => {
    expect((await push('https://packages.example/page')).body.error.details).toEqual([
      { field: 'file', message: expect.stringContaining('is not a zip') },
    ]);
  });

  it('names all invalid fields', async () => {
    const { status, body } = await push('https://packages.example/queue.zip', { name: '-', colour: 1 });
    expect([status, body.error.details.map(({ field }: { field: string }) => field)]).toEqual([
      400,
      ['name', 'colour'],
    ]);
  });
});

describe('a package by URL', () => {
  it.each(['/queue.zip', '/moved', '/elsewhere'])("is fetched from %s without the caller's headers", async (path) => {
    const name = `by-url${path.replace('/', '-').replace('.zip', '')}`;
    const { status, body } = await push(`https://packages.example${path}`, { name });
    expect([status, body.title]).toEqual([201, 'From afar']);
    const response = await fetch(new URL(`/v1/stacks/${name}/download`, api().url), {
      headers: { authorization: `Bearer ${api().admin}` },
    });
    expect(Buffer.from(await response.arrayBuffer()).equals(zip)).toBe(true);
    for (const { headers } of current().asked) {
      expect(headers.host).toMatch(/^[a-z]+\.example$/);
      expect(Object.keys(headers).toSorted()).toEqual([
        'accept',
        'accept-encoding',
        'connection',
        'host',
        'user-agent',
      ]);
    }
  });

  it('gives the stack its name when no other is given', async () => {
    expect((await push('https://packages.example/queue.zip')).body.name).toBe('queue');
  });

  it('is fetched from a second address of its host when the first is silent, and fails when all are', async () => {
    expect((await push('https://half.example/queue.zip', { name: 'half' })).status).toBe(201);
    const { body } = await push('https://silent.example/queue.zip', { name: 'silent' });
    expect(body.error.details).toEqual([{ field: 'url', message: expect.stringContaining('within 2 seconds') }]);
  });
});
