import { Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { closed, opened, useWebPlace, type WebPlace, webStack } from './web-place.ts';

/** Addresses for members only: a link that works once, a cookie for one host, and the ends of both. */

const newPlace = useWebPlace();

const linkOf = async ({ gateway }: WebPlace, runId: string, key: string): Promise<string> => {
  const answer = await gateway.ask(`/v1/runs/${runId}/open`, { method: 'POST', key });
  if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
  return answer.body.url;
};

/** Follows a link as a browser does, and presses its button. @returns the cookie, as it is sent back */
async function enter({ caddy }: WebPlace, link: string): Promise<string> {
  const shown = await caddy.get(link, undefined, { headers: { accept: 'text/html' } });
  expect([shown.status, await shown.text()]).toEqual([200, expect.stringContaining('<form method="post">')]);
  const answer = await caddy.get(link, undefined, { method: 'POST', headers: { origin: caddy.at(link).origin } });
  await answer.text();
  const [cookie = ''] = answer.headers.getSetCookie();
  expect([answer.status, answer.headers.get('location')]).toEqual([303, '/']);
  expect(cookie).toMatch(/^__Host-headgate_access=[\w-]{43}; Path=\/; Max-Age=\d+; Secure; HttpOnly; SameSite=Lax$/);
  return cookie.split(';')[0] ?? '';
}

describe('a web address for members', () => {
  it('rejects requests without a cookie, used links, and cookies of another host', async () => {
    const web = await newPlace();
    const { gateway, caddy, organization, application, ready, place } = web;
    await gateway.upload('other', webStack);
    const app = await application();
    const run = await ready('web', { port: app.port }, { access: 'members' });
    const other = await ready('other', { port: app.port }, { access: 'members' });
    const nobody = await caddy.text(run.url, '/secret', { headers: { accept: 'text/html' } });
    expect([nobody.status, nobody.text]).toEqual([401, expect.stringContaining('<h1>Members only</h1>')]);
    expect((await caddy.text(run.url, '/', { headers: { cookie: '__Host-headgate_access=' } })).status).toBe(401);
    await expect(opened(caddy.websocket(run.url, '/socket'))).rejects.toThrow('the websocket was');
    expect(app.seen).toEqual([]);

    const stranger = await gateway.made('/v1/organizations', { name: 'Others' });
    const theirs = await gateway.ask(`/v1/runs/${run.id}/open`, { method: 'POST', key: stranger.management_key });
    expect(theirs.status).toBe(404);

    const { body: member } = await gateway.ask('/v1/keys', { body: { name: 'app' }, key: organization.key });
    const link = await linkOf(web, run.id, member.secret);
    const elsewhere = new URL(link).pathname + new URL(link).search;
    expect((await caddy.text(other.url, elsewhere, { method: 'POST' })).status).toBe(403);
    const cookie = await enter(web, link);
    const again = await caddy.text(link, undefined, { method: 'POST' });
    expect([again.status, again.text]).toEqual([403, expect.stringContaining('no longer works')]);
    expect((await caddy.text(other.url, '/', { headers: { cookie } })).status).toBe(401);
    expect((await caddy.text(run.url, '/', { headers: { cookie: `${cookie}; ${cookie}` } })).status).toBe(401);
    // The cookie is of this host, and the request is not.
    const games = await caddy.raw(
      new URL(run.url).hostname,
      `GET / HTTP/1.1\r\nHost: ${new URL(other.url).hostname}\r\nCookie: ${cookie}\r\nConnection: close\r\n\r\n`,
    );
    expect(games).toMatch(/^HTTP\/1.1 401 /);

    const headers = { cookie: `a=1; ${cookie}; b=2` };
    const shown = JSON.parse((await caddy.text(run.url, '/mine', { headers })).text);
    expect([shown.url, shown.headers.cookie]).toEqual(['/mine', 'a=1; b=2']);
    expect(JSON.stringify(app.seen.map(({ rawHeaders }) => rawHeaders))).not.toContain('headgate_access');
    const rows = JSON.stringify(await place.sql`select encode(hash, 'escape'), t::text from exposure_entrances t`);
    expect(rows).not.toContain(cookie.split('=')[1]);
    expect(gateway.output).not.toContain(cookie.split('=')[1]);
    expect(gateway.output).not.toContain(new URL(link).searchParams.get('link'));
  });

  it('rejects requests from pages of other addresses, also of the same domain', async () => {
    const web = await newPlace({ access: 'members' });
    const { caddy, organization, application, ready } = web;
    const app = await application();
    const run = await ready('web', { port: app.port });
    const cookie = await enter(web, await linkOf(web, run.id, organization.key));
    const origin = caddy.at(run.url).origin;
    const ask = async (headers: Record<string, string>, method = 'GET'): Promise<number> =>
      (await caddy.text(run.url, '/', { method, headers: { cookie, ...headers } })).status;
    expect(await ask({ origin: 'https://evil--c.apps.test' }, 'POST')).toBe(403);
    expect(await ask({ origin: 'null' }, 'POST')).toBe(403);
    const { hostname } = new URL(run.url);
    const raw = (said: string): Promise<string> =>
      caddy.raw(
        hostname,
        `GET / HTTP/1.1\r\nHost: ${hostname}\r\nCookie: ${cookie}\r\n${said}\r\nConnection: close\r\n\r\n`,
      );
    expect(await raw('Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors')).toContain('HTTP/1.1 403');
    await expect(
      opened(caddy.websocket(run.url, '/', { cookie, origin: 'https://evil--c.apps.test' })),
    ).rejects.toThrow('the websocket was');
    expect(app.seen).toEqual([]);
    expect(await ask({ origin }, 'POST')).toBe(200);
    expect(await raw('Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate')).toContain('HTTP/1.1 200');
    await opened(caddy.websocket(run.url, '/', { cookie, origin }));
  });

  it('closes, with its open websockets, when its key or its run ends', async () => {
    const web = await newPlace();
    const { gateway, caddy, organization, application, ready, place } = web;
    const app = await application();
    const run = await ready('web', { port: app.port }, { access: 'members' });
    const { body: key } = await gateway.ask('/v1/keys', { body: { name: 'app' }, key: organization.key });
    const cookie = await enter(web, await linkOf(web, run.id, key.secret));
    const kept = await enter(web, await linkOf(web, run.id, organization.key));
    const [one, two] = [cookie, kept].map((own) => caddy.websocket(run.url, '/', { cookie: own }));
    if (one === undefined || two === undefined) throw new Error('there are two');
    await Promise.all([opened(one), opened(two)]);
    const ended = closed(one);
    await gateway.ask(`/v1/keys/${key.id}`, { method: 'DELETE', key: organization.key }).catch(() => undefined);
    await ended;
    expect((await caddy.text(run.url, '/', { headers: { cookie } })).status).toBe(401);
    expect((await caddy.text(run.url, '/', { headers: { cookie: kept } })).status).toBe(200);
    const link = await linkOf(web, run.id, organization.key);
    const endedToo = closed(two);
    await gateway.made(`/v1/runs/${run.id}/destroy`);
    await endedToo;
    const entrances = await place.sql`
      select 1 from exposure_entrances where organization_id = ${organization.id.replace('org_', '')}::uuid`;
    expect(entrances).toEqual([]);
    for (const path of ['/', new URL(link).pathname + new URL(link).search]) {
      expect((await caddy.text(run.url, path, { method: 'POST', headers: { cookie: kept } })).status).toBe(404);
    }
    const refused = await gateway.ask(`/v1/runs/${run.id}/open`, { method: 'POST', key: organization.key });
    expect([refused.status, refused.body.error.message]).toEqual([
      409,
      expect.stringContaining('The run has no web address.'),
    ]);
  });
});

describe('a request to an application', () => {
  it('contains no API key of the gateway, and no header of another connection', async () => {
    const { caddy, organization, application, ready, webUrl } = await newPlace();
    const app = await application();
    const run = await ready('web', { port: app.port });
    const { key } = organization;
    const host = new URL(run.url).hostname;
    const basic = Buffer.from(`user:${key}`).toString('base64');
    for (const headers of [
      { authorization: `Bearer ${key}` },
      { authorization: `Basic ${basic}` },
      { 'x-api-key': key },
      { cookie: `token=${key}` },
    ]) {
      const refused = await caddy.text(run.url, '/', { headers });
      expect([headers, refused.status]).toEqual([headers, 400]);
    }
    expect((await caddy.text(run.url, `/?key=${key}`)).status).toBe(400);
    expect(app.seen).toEqual([]);
    expect((await caddy.text(run.url, '/', { headers: { authorization: 'Bearer its-own' } })).status).toBe(200);

    const cookies = await caddy.get(run.url, '/cookies');
    expect([cookies.headers.getSetCookie(), cookies.headers.get('x-own')]).toEqual([['own=1; Path=/'], null]);
    const redirect = await caddy.get(run.url, '/redirect');
    expect([redirect.status, redirect.headers.get('location')]).toEqual([
      302,
      'http://169.254.169.254/latest/meta-data/',
    ]);
    const plain = await fetch(`http://127.0.0.1:${caddy.httpPort}/a?b`, { redirect: 'manual', headers: { host } });
    expect([plain.status, plain.headers.get('location')]).toEqual([308, expect.stringMatching(/^https:\/\/.*\/a\?b$/)]);

    // A client that comes through Caddy cannot make Caddy's own requests.
    const ask = `/internal/tls/ask?domain=${host}`;
    expect((await fetch(`${webUrl}${ask}`)).status).toBe(200);
    expect((await fetch(`${webUrl}/internal/tls/ask?domain=x.apps.test`)).status).toBe(404);
    expect((await fetch(`${webUrl}/v1/runs`)).status).toBe(404);
    const asked = await caddy.raw(host, `GET ${ask} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n`);
    expect(asked).toMatch(/^HTTP\/1.1 404 [^]*There is no application/);
  });

  it('stays one request, for any bytes that a client sends', async () => {
    const { application, ready, caddy, webUrl } = await newPlace();
    const app = await application();
    const run = await ready('web', { port: app.port });
    const { hostname: host } = new URL(run.url);
    for (const [what, bytes] of shapes) {
      const raw = bytes.replaceAll('Host: H\r\n', `Host: ${host}\r\n`);
      const seenOf = () => app.seen.splice(0).map(({ url, headers }) => [url, headers.host?.split(':')[0]]);
      // Bytes that Caddy reads as two requests have two answers, and each of them has gone through here by itself.
      const answers = (await caddy.raw(host, raw)).match(/HTTP\/1\.1 \d{3} /g) ?? [];
      const seen = seenOf();
      expect([what, seen.length <= answers.length, seen.filter(([, to]) => to !== host)]).toEqual([what, true, []]);
      // And without Caddy before it.
      await send(Number(new URL(webUrl).port), raw);
      const alone = seenOf();
      expect([what, alone.length <= 1, alone.filter(([url]) => url !== '/')]).toEqual([what, true, []]);
    }
    expect((await caddy.text(run.url, '/alive')).status).toBe(200);
  });
});

/** Requests that two servers could take for different ones. */
const shapes: readonly (readonly [string, string])[] = [
  ['two lengths', 'POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde'],
  [
    'a length and an encoding',
    'POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: H\r\n\r\n',
  ],
  [
    'an encoding that is none',
    'POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: H\r\n\r\n',
  ],
  [
    'a space before the colon',
    'POST / HTTP/1.1\r\nHost: H\r\nContent-Length : 40\r\n\r\nGET /hidden HTTP/1.1\r\nHost: H\r\n\r\n',
  ],
  ['two hosts', 'GET / HTTP/1.1\r\nHost: H\r\nHost: other.test\r\n\r\n'],
  ['another host in the address', 'GET http://169.254.169.254/ HTTP/1.1\r\nHost: H\r\n\r\n'],
  [
    'another protocol',
    'GET / HTTP/1.1\r\nHost: H\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n',
  ],
  [
    'a body before a websocket',
    'GET / HTTP/1.1\r\nHost: H\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: SGVsbG8sIHdvcmxkIQ==\r\nContent-Length: 33\r\n\r\nGET /hidden HTTP/1.1\r\nHost: H\r\n\r\n',
  ],
  ['a CONNECT', 'CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: H\r\n\r\n'],
];

async function send(port: number, bytes: string): Promise<void> {
  const socket = new Socket().connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  socket.end(bytes);
  await new Promise((resolve) => socket.resume().on('close', resolve));
}
