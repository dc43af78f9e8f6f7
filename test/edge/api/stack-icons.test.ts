import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Outbound } from '#core/stacks/stacks.ts';
import { type PackageServer, startPackageServer } from '#test/stacks/package-server.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { useApi } from '#test/api/test-api.ts';

const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
const svg = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>';

let server: PackageServer | null = null;
let asked = 0;
let key = '';
const current = (): PackageServer => {
  if (server === null) throw new Error('the server is started before the tests');
  return server;
};
const outbound: Outbound = {
  resolve: (...asked) => current().outbound.resolve(...asked),
  dial: (address, port) => current().outbound.dial(address, port),
};
const api = useApi({ downloads: { outbound, timeoutMs: 2000 } });

beforeAll(async () => {
  ({ key } = await api().organization());
  server = await startPackageServer(
    { 'images.example': ['93.184.215.14'], 'inside.example': ['10.0.0.5'] },
    {
      '/icon.png': (response) => {
        asked += 1;
        response.writeHead(200, { 'content-type': 'text/html' }).end(png);
      },
      '/icon.svg': (response) => response.writeHead(200, { 'content-type': 'image/png' }).end(svg),
      '/large.png': (response) => response.end(Buffer.concat([png, Buffer.alloc(600 * 1024)])),
      '/inside': (response) => response.writeHead(302, { location: 'https://inside.example/icon.png' }).end(),
      '/gone.png': (response) => response.writeHead(404).end(png),
    },
  );
});
afterAll(() => server?.close());

/** @returns what is answered for the image of a stack with this icon */
async function iconOf(name: string, icon: string) {
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': '' }))], 'x.zip'));
  form.append('name', name);
  form.append('icon', icon);
  const headers = { authorization: `Bearer ${key}` };
  const pushed = await fetch(new URL('/v1/stacks', api().url), { method: 'POST', headers, body: form });
  expect(pushed.status).toBe(201);
  return () => fetch(new URL(`/v1/stacks/${name}/icon`, api().url), { headers });
}

describe('a rejected stack image', () => {
  it.each([
    ['svg', 'https://images.example/icon.svg'],
    ['large', 'https://images.example/large.png'],
    ['inside', 'https://inside.example/icon.png'],
    ['moved-inside', 'https://images.example/inside'],
    ['gone', 'https://images.example/gone.png'],
    ['unknown', 'https://nowhere.example/icon.png'],
    ['literal', 'https://127.0.0.1/icon.png'],
    ['emoji', '🧵'],
  ])('returns 404: %s', async (name, icon) => {
    const answer = await (await iconOf(name, icon))();
    expect([answer.status, await answer.text()]).toEqual([
      404,
      expect.stringContaining('no icon image, or the image could not be loaded'),
    ]);
  });
});

describe('a stack image', () => {
  it("is fetched once, and has the type of its bytes, not of its server's header", async () => {
    const read = await iconOf('png', 'https://images.example/icon.png');
    for (let times = 0; times < 3; times += 1) {
      const answer = await read();
      expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'image/png']);
      expect(answer.headers.get('content-security-policy')).toBe("default-src 'none'; sandbox");
      expect(Buffer.from(await answer.arrayBuffer()).equals(png)).toBe(true);
    }
    expect(asked).toBe(1);
  });

  it('can be a data URL', async () => {
    const answer = await (await iconOf('data', `data:image/png;base64,${png.toString('base64')}`))();
    expect(answer.headers.get('content-type')).toBe('image/png');
    expect(Buffer.from(await answer.arrayBuffer()).equals(png)).toBe(true);
  });
});
