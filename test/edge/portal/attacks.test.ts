import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { cookieOf, makeLink, send, signInVisitor, useLink, type Visitor } from '#test/portal/visitor.ts';

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway();
  admin = await signInVisitor(gateway);
});

afterAll(() => gateway.stop());

async function keyNames(): Promise<readonly string[]> {
  const { data } = (await (await gateway.request('/v1/keys')).json()) as { data: { name: string }[] };
  return data.map(({ name }) => name);
}

const newKey = { name: 'forged', expiry: 'never', scope: 'inference' };

describe('a forged form', () => {
  it.each([
    ['without the address of its page', {}, { origin: null }],
    ['of another site', {}, { origin: 'https://evil.example' }],
    ['of another port', {}, { origin: 'http://127.0.0.1:1' }],
    ['of a page that hides where it is from', {}, { origin: 'null' }],
    ['of a neighbour on the same site', {}, { 'sec-fetch-site': 'same-site' }],
    ['of another site, by its browser', {}, { 'sec-fetch-site': 'cross-site' }],
    ['without its token', { form_token: '' }, {}],
    ['with the token of another session', { form_token: randomBytes(32).toString('base64url') }, {}],
  ])('is rejected: %s', async (_, fields, headers) => {
    const { status } = await admin.post('/portal/keys', { ...newKey, ...fields }, headers);
    expect(status).toBe(403);
    expect(await keyNames()).not.toContain('forged');
  });

  it('is rejected behind an unconfigured proxy, with the setting to fix', async () => {
    const origin = gateway.url.replace('http:', 'https:');
    const told = await admin.post('/portal/keys', newKey, { origin });
    expect([told.status, told.text.includes('HEADGATE_TRUSTED_PROXIES')]).toEqual([403, true]);
    const other = await admin.post('/portal/keys', newKey, { origin: 'https://evil.example' });
    expect([other.status, other.text.includes('HEADGATE_TRUSTED_PROXIES')]).toEqual([403, false]);
    expect(await keyNames()).not.toContain('forged');
  });

  it('is rejected with a content type that other sites can send without a preflight', async () => {
    for (const type of ['text/plain', 'application/json', 'multipart/form-data; boundary=x']) {
      const { status } = await admin.post('/portal/keys', newKey, { 'content-type': type });
      expect([type, status]).toEqual([type, 400]);
    }
    expect(await keyNames()).not.toContain('forged');
  });

  it('is rejected above 64 KiB', async () => {
    expect((await admin.post('/portal/keys', { ...newKey, name: 'x'.repeat(70_000) })).status).toBe(413);
  });

  it('is rejected by GET, because links change nothing', async () => {
    for (const path of ['/portal/sign-out', '/portal/sessions/end', '/portal/wallet/credits']) {
      expect([path, (await admin.get(path)).status]).toEqual([path, 404]);
    }
    expect((await admin.get('/portal/keys')).status).toBe(200);
  });
});

describe('a session', () => {
  it('ignores a planted cookie and does not adopt it', async () => {
    const [name = ''] = admin.cookie.split('=');
    const planted = `${name}=${randomBytes(32).toString('base64url')}`;
    const opened = await useLink(gateway.url, await makeLink(gateway), { cookie: planted });
    expect(opened.status).toBe(303);
    expect(cookieOf(opened)).not.toBe(planted);
    const withPlanted = await send(`${gateway.url}/portal/keys`, { headers: { accept: 'text/html', cookie: planted } });
    expect([withPlanted.status, withPlanted.headers.location]).toEqual([303, '/?next=%2Fportal%2Fkeys']);
  });

  it('ends when another session starts in the same browser', async () => {
    const before = await signInVisitor(gateway);
    const opened = await useLink(gateway.url, await makeLink(gateway), { cookie: before.cookie });
    expect(opened.status).toBe(303);
    expect((await before.get('/portal/keys')).status).toBe(303);
  });

  it('has a cookie that is hidden from scripts, other sites and other paths', async () => {
    const opened = await useLink(gateway.url, await makeLink(gateway));
    const [set = ''] = opened.headers['set-cookie'] ?? [];
    expect(set).toMatch(/^headgate-\d+=[\w-]{43}; Max-Age=604800; Path=\/; HttpOnly; SameSite=Lax$/);
  });

  it('can be ended elsewhere, and its next page asks to sign in', async () => {
    const other = await signInVisitor(gateway);
    const list = await admin.get('/portal/sessions');
    expect(list.text.match(/name="which" value="session_/g)?.length).toBeGreaterThan(0);
    expect((await admin.post('/portal/sessions/end', { which: 'others' })).status).toBe(303);
    const after = await other.get('/portal/wallet');
    expect([after.status, after.headers.location]).toEqual([303, '/?next=%2Fportal%2Fwallet']);
    expect((await other.post('/portal/keys', newKey)).status).toBe(303);
    expect(await keyNames()).not.toContain('forged');
    expect((await admin.get('/portal/wallet')).status).toBe(200);
  });

  it('ends by signing out, and its cookie is then invalid', async () => {
    const visitor = await signInVisitor(gateway);
    expect((await visitor.post('/portal/sign-out')).status).toBe(303);
    expect((await visitor.get('/portal/keys')).status).toBe(303);
  });

  it('ends after 12 hours without use and after 7 days; automatic refreshes do not count as use', async () => {
    const visitor = await signInVisitor(gateway);
    const { sql } = gateway.db;
    const age = (column: string, hours: number) =>
      sql`update sessions set ${sql(column)} = ${sql(column)} - make_interval(hours => ${hours}) where id = (select max(id::text)::uuid from sessions)`;
    await age('last_seen_at', 11);
    expect((await visitor.get('/', { 'x-poll': '1' })).text).toContain('Balance');
    await age('last_seen_at', 2);
    expect((await visitor.get('/portal/keys')).status).toBe(303);
    const used = await signInVisitor(gateway);
    await age('expires_at', 24 * 7);
    expect((await used.get('/portal/keys')).status).toBe(303);
  });

  it('is stored as a hash: the database has no cookie and no link', async () => {
    const token = await makeLink(gateway);
    const kept = JSON.stringify([
      ...(await gateway.db.sql`select encode(token_hash, 'escape') as hash, s.* from sessions s`),
      ...(await gateway.db.sql`select encode(token_hash, 'escape') as hash, l.* from sign_in_links l`),
    ]);
    expect(kept).not.toContain(token);
    expect(kept).not.toContain(admin.cookie.split('=')[1]);
    expect(gateway.logLines.join('')).not.toContain(token);
  });
});

describe('a sign-in link', () => {
  it('stays valid when opened, works once, and never again', async () => {
    const token = await makeLink(gateway);
    for (let opened = 0; opened < 3; opened += 1) {
      const shown = await send(`${gateway.url}/welcome?token=${token}`, { headers: { accept: 'text/html' } });
      expect([shown.status, shown.headers['set-cookie']]).toEqual([200, undefined]);
    }
    const together = await Promise.all(Array.from({ length: 5 }, () => useLink(gateway.url, token)));
    expect(together.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([303, 404, 404, 404, 404]);
    expect((await send(`${gateway.url}/welcome?token=${token}`)).status).toBe(404);
  });

  it('expires after ten minutes', async () => {
    const token = await makeLink(gateway);
    await gateway.db.sql`update sign_in_links set expires_at = now() - interval '1 second' where used_at is null`;
    expect((await useLink(gateway.url, token)).status).toBe(404);
  });

  it('is rejected from another site, which could sign a victim in as another user', async () => {
    const token = await makeLink(gateway);
    expect((await useLink(gateway.url, token, { origin: 'https://evil.example' })).status).toBe(403);
    expect((await useLink(gateway.url, token)).status).toBe(303);
  });

  it.each([[''], ['x'], ['a'.repeat(43)], ["' or 1=1 --"], ['<script>alert(1)</script>'], ['\u0000']])(
    'is rejected when invalid: %j',
    async (token) => {
      const { status, text } = await useLink(gateway.url, token);
      expect(status).toBe(404);
      expect(text).not.toContain('<script>alert');
    },
  );

  it('signs in no user over plain HTTP from another host, where the cookie could be stolen', async () => {
    const token = await makeLink(gateway);
    const host = 'gateway.example:8080';
    const { status, headers } = await useLink(gateway.url, token, { host, origin: `http://${host}` });
    expect([status, headers['set-cookie']]).toEqual([403, undefined]);
    const shown = await send(`${gateway.url}/`, { headers: { accept: 'text/html', host } });
    expect(shown.text).toContain('Sign-in requires HTTPS');
  });
});

it('redirects to this host only, for any requested address', async () => {
  const tempting = ['//evil.example', '/\\evil.example', '/portal//evil.example', '/?next=https://evil.example'];
  const signedOut = ['/portal/keys?next=//evil.example', '/portal?to=https://evil.example', ...tempting];
  for (const path of signedOut) {
    const { status, headers } = await send(`${gateway.url}${path}`, { headers: { accept: 'text/html' } });
    const location = status >= 300 && status < 400 ? String(headers.location) : '/';
    expect([path, location]).toEqual([
      path,
      expect.stringMatching(/^\/(?:\?next=%2Fportal%2Fkeys%3Fnext%3D%2F%2Fevil)?/),
    ]);
    expect(new URL(location, gateway.url).origin, path).toBe(gateway.url);
  }
  const said = await admin.post('/portal/sign-out?next=//evil.example', {
    next: 'https://evil.example',
    form_token: 'x',
  });
  expect(said.headers.location).toBeUndefined();
});
