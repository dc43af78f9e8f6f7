import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { cookieOf, makeLink, send, type Shown, signInVisitor, useLink, type Visitor } from '#test/portal/visitor.ts';

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_TRUSTED_PROXIES: '127.0.0.1' } });
  admin = await signInVisitor(gateway);
});

afterAll(() => gateway.stop());

const pages = [
  '/',
  '/portal/keys',
  '/portal/keys/new',
  '/portal/usage',
  '/portal/wallet',
  '/portal/models',
  '/portal/playground',
  '/portal/sessions',
];

describe('a page at / or below /portal', () => {
  it("returns the API's JSON error to programs", async () => {
    for (const accept of ['*/*', 'application/json', null]) {
      const { status, text } = await send(`${gateway.url}/`, { headers: { accept } });
      expect([accept, status]).toEqual([accept, 404]);
      expect(JSON.parse(text)).toMatchObject({ error: { code: 'not_found' } });
    }
  });

  it("shows browsers how to sign in, and nothing of the gateway's data", async () => {
    const { status, text } = await send(`${gateway.url}/`, { headers: { accept: 'text/html,application/xhtml+xml' } });
    expect(status).toBe(200);
    expect(text).toContain('npx headgate welcome');
    expect(text).not.toContain('standin');
  });

  it('leads to the sign-in page from the addresses that other programs use', async () => {
    for (const path of ['/login', '/signin', '/portal/']) {
      const { status, headers } = await send(`${gateway.url}${path}`, { headers: { accept: 'text/html' } });
      expect([path, status, headers.location]).toEqual([path, 303, '/']);
    }
    expect((await send(`${gateway.url}/login`)).status).toBe(404);
  });

  it('requires a session', async () => {
    for (const path of pages.slice(1)) {
      const { status, headers } = await send(`${gateway.url}${path}`, { headers: { accept: 'text/html' } });
      expect([path, status, headers.location]).toEqual([path, 303, `/?next=${encodeURIComponent(path)}`]);
    }
    for (const path of pages) expect([path, (await admin.get(path)).status]).toEqual([path, 200]);
  });

  it('gives no access to the JSON API by its cookie', async () => {
    const { cookie } = admin;
    for (const path of ['/v1/keys', '/v1/wallet', '/v1/projects']) {
      expect([path, (await send(`${gateway.url}${path}`, { headers: { cookie } })).status]).toEqual([path, 401]);
    }
  });

  it("is an error page with the API's status for unknown objects", async () => {
    const missing = [`/portal/keys/key_${'0'.repeat(32)}`, '/portal/usage/none', '/portal/models/none', '/portal/none'];
    for (const path of missing) {
      const { status, headers } = await admin.get(path);
      expect([path, status, headers['content-type']]).toEqual([path, 404, 'text/html; charset=UTF-8']);
    }
  });
});

describe('every page', () => {
  const ofPolicy = ({ headers }: Shown) => String(headers['content-security-policy']);

  it('allows only its own resources, and no frames', async () => {
    for (const path of [...pages, '/portal/none', '/welcome?token=x']) {
      const shown = await admin.get(path);
      expect(ofPolicy(shown), path).toContain("default-src 'none'");
      expect(ofPolicy(shown), path).toContain("frame-ancestors 'none'");
      expect(ofPolicy(shown), path).not.toContain('unsafe');
      expect(shown.headers, path).toMatchObject({ 'cache-control': 'no-store', 'referrer-policy': 'same-origin' });
      expect(shown.text, path).not.toMatch(/ style=|<style|<script>| on[a-z]+=|javascript:/);
      const elsewhere = [...shown.text.matchAll(/(?:src|href|action)="([^"]*)"/g)].filter(
        ([, to]) => !to?.startsWith('/') && !to?.startsWith('#'),
      );
      expect(elsewhere, path).toEqual([]);
    }
  });

  it('loads style and scripts by versioned URLs that are cached permanently', async () => {
    const { text } = await admin.get('/');
    const assets = [...text.matchAll(/(?:src|href)="(\/portal\/assets\/[^"]+)"/g)].flatMap(([, path]) => path ?? []);
    expect(new Set(assets).size).toBe(6);
    for (const path of assets) {
      const { status, headers } = await send(`${gateway.url}${path}`);
      expect([path, status, headers['cache-control']]).toEqual([path, 200, 'public, max-age=31536000, immutable']);
    }
    expect((await send(`${gateway.url}/portal/assets/aaaa/portal.css`)).status).toBe(404);
    expect((await send(`${gateway.url}/portal/assets/aaaa/..%2f..%2fportal.ts`)).status).toBe(404);
  });

  it('writes its changes to the audit log with the signed-in user', async () => {
    await admin.post('/portal/wallet/credits', { amount: '2.50', reference: 'pages-1', note: '' });
    const [row] = await gateway.db.sql`
      select actor_key_id, actor_user_id, request_id from audit_log where action = 'wallet.credited' order by id desc limit 1`;
    expect(row).toMatchObject({ actor_key_id: null });
    expect(row?.['actor_user_id']).toMatch(/^[0-9a-f-]{36}$/);
    expect(gateway.logLines.join('')).toContain(String(row?.['request_id']));
    const again = await admin.post('/portal/wallet/credits', { amount: '2.50', reference: 'pages-1', note: '' });
    expect(again.headers.location).toBe('/portal/wallet?notice=repeated');
    const other = await admin.post('/portal/wallet/credits', { amount: '3', reference: 'pages-1', note: '' });
    expect(other.status).toBe(422);
  });

  it('shows a member what the API allows a member, and hides the rest', async () => {
    const visitor = await signInVisitor(gateway);
    const { sql } = gateway.db;
    await sql`update users set platform_role = 'user'`;
    await sql`update memberships set role = 'member'`;
    try {
      const overview = await visitor.get('/');
      expect(overview.status).toBe(200);
      expect(overview.text).toContain('Balance');
      expect(overview.text).not.toContain('/portal/keys');
      const usage = await visitor.get('/portal/usage');
      expect([usage.status, usage.text.includes('Members see only the usage of their own keys')]).toEqual([200, true]);
      for (const path of ['/portal/keys', '/portal/keys/new']) {
        expect([path, (await visitor.get(path)).status]).toEqual([path, 403]);
      }
      expect((await visitor.get('/portal/wallet')).text).not.toContain('Add credit');
      const credit = { amount: '1', reference: 'member', note: '' };
      expect((await visitor.post('/portal/wallet/credits', credit)).status).toBe(403);
      const correction = { amount: '1', reference: 'member', reason: 'mine' };
      expect((await visitor.post('/portal/wallet/adjustments', correction)).status).toBe(403);
      const key = { name: 'by a member', expiry: 'never', scope: 'inference' };
      expect((await visitor.post('/portal/keys', key)).status).toBe(403);
      await sql`update memberships set role = 'admin'`;
      expect((await visitor.get('/portal/keys')).status).toBe(200);
      expect((await visitor.get('/portal/wallet')).text).not.toContain('Add credit');
    } finally {
      await sql`update users set platform_role = 'admin'`;
      await sql`update memberships set role = 'owner'`;
    }
  });
});

describe('a form for keys and secrets', () => {
  async function makeKey(
    name: string,
  ): Promise<{ readonly id: string; readonly last4: string; readonly secret: string }> {
    return (await (await gateway.request('/v1/keys', { body: { name } })).json()) as never;
  }
  const secretOn = ({ text }: Shown): string => /<pre id="secret"[^>]*>([^<]+)</.exec(text)?.[1] ?? '';
  const models = async (key: string): Promise<number> => (await gateway.request('/v1/models', { key })).status;

  it('rejects an invalid grace time, and an ended key', async () => {
    const { id, last4, secret } = await makeKey('refused');
    for (const grace of ['', '-1', 'soon', '2592001']) {
      const shown = await admin.post(`/portal/keys/${id}/rotate`, { last4, grace_seconds: grace });
      expect([grace, shown.status, secretOn(shown)]).toEqual([grace, 400, '']);
    }
    expect(await models(secret)).toBe(200);
    await gateway.request(`/v1/keys/${id}`, { method: 'DELETE' });
    expect((await admin.get(`/portal/keys/${id}`)).text).not.toContain(`/portal/keys/${id}/rotate`);
    const ended = await admin.post(`/portal/keys/${id}/rotate`, { last4, grace_seconds: '0' });
    expect([ended.status, ended.text.includes('this key is revoked; create a new key instead')]).toEqual([409, true]);
  });

  it('shows a rotated secret once, and the former one works for the chosen time', async () => {
    const { id, last4, secret } = await makeKey('rotated');
    expect((await admin.get(`/portal/keys/${id}`)).text).toContain(`href="/portal/keys/${id}/rotate"`);
    expect((await admin.get(`/portal/keys/${id}/rotate`)).text).toContain(`name="last4" value="${last4}"`);
    const shown = await admin.post(`/portal/keys/${id}/rotate`, { last4, grace_seconds: '3600' });
    const next = secretOn(shown);
    expect([shown.status, next.slice(-4)]).toEqual([200, expect.not.stringMatching(last4)]);
    expect(shown.text).toContain(`…${last4}</code> is valid until`);
    expect([await models(secret), await models(next)]).toEqual([200, 200]);
    const later = await admin.get(`/portal/keys/${id}`);
    expect([later.text.includes(next), later.text.includes('Former secret')]).toEqual([false, true]);
    const last = await admin.post(`/portal/keys/${id}/rotate`, { last4: next.slice(-4), grace_seconds: '0' });
    expect(last.text).toContain(`…${next.slice(-4)}</code> is no longer valid`);
    expect([await models(secret), await models(next), await models(secretOn(last))]).toEqual([200, 401, 200]);
  });

  it('creates a key once when it is sent twice at once', async () => {
    const once = /name="once" value="([^"]+)"/.exec((await admin.get('/portal/keys/new')).text)?.[1] ?? '';
    const fields = { name: 'form sent twice', scope: 'inference', expiry: 'never', once };
    const [first, second] = await Promise.all([admin.post('/portal/keys', fields), admin.post('/portal/keys', fields)]);
    const [made, again] = first.status === 200 ? [first, second] : [second, first];
    expect([made.status, again.status, secretOn(again)]).toEqual([200, 409, '']);
    expect(again.text).toContain('already created a key');
    const id = /\/portal\/keys\/(key_[0-9a-f]{32})\/rotate/.exec(again.text)?.[1] ?? '';
    expect((await admin.get(`/portal/keys/${id}`)).text).toContain('form sent twice');
    expect(await models(secretOn(made))).toBe(200);
    const other = await admin.post('/portal/keys', { ...fields, name: 'form with other words' });
    expect(other.status).toBe(200);
    for (const name of [id, /\/portal\/usage\?key=(key_[0-9a-f]{32})/.exec(other.text)?.[1] ?? ''])
      expect((await gateway.request(`/v1/keys/${name}`, { method: 'DELETE' })).status).toBe(200);
  });

  it('rotates a key once when it is sent twice', async () => {
    const { id, last4 } = await makeKey('sent twice');
    const fields = { last4, grace_seconds: '0' };
    const first = await admin.post(`/portal/keys/${id}/rotate`, fields);
    const again = await admin.post(`/portal/keys/${id}/rotate`, fields);
    expect([again.status, secretOn(again), again.text.includes('Nothing was changed')]).toEqual([409, '', true]);
    expect(await models(secretOn(first))).toBe(200);
  });

  it('rotates a key once when it is sent several times at the same moment', async () => {
    const { id, last4 } = await makeKey('twice at once');
    const fields = { last4, grace_seconds: '0' };
    const shown = await Promise.all([1, 2, 3].map(() => admin.post(`/portal/keys/${id}/rotate`, fields)));
    expect(shown.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 409, 409]);
    const secrets = shown.map((one) => secretOn(one)).filter((secret) => secret !== '');
    expect(secrets).toHaveLength(1);
    expect(await models(secrets[0] ?? '')).toBe(200);
  });
});

it("rotates a webhook's secret once when it is sent twice, and the receiver's secret stays valid", async () => {
  const made = await gateway.request('/v1/webhooks', { body: { url: 'https://example.com/twice' } });
  const { id } = (await made.json()) as { id: string };
  const path = `/portal/webhooks/${id}/rotate`;
  const began = /name="secret_rotated_at" value="(\d*)"/.exec((await admin.get(path)).text)?.[1];
  const fields = { grace_seconds: '86400', secret_rotated_at: began ?? 'none' };
  const shown = await Promise.all([1, 2, 3].map(() => admin.post(path, fields)));
  expect(shown.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 409, 409]);
  const refused = shown.find(({ status }) => status === 409)?.text ?? '';
  expect([refused.includes('Nothing was changed'), refused.includes('whsec_')]).toEqual([true, false]);
  const next = /name="secret_rotated_at" value="(\d+)"/.exec(refused)?.[1] ?? '';
  expect((await admin.post(path, { ...fields, secret_rotated_at: next })).status).toBe(200);
});

it('shows and sets whether a key is confined to its project, in both forms', async () => {
  expect((await admin.get('/portal/keys/new')).text).toMatch(/name="confined" value="budget" checked/);
  await admin.post('/portal/keys', { name: 'held fast', confined: 'yes', scope: 'inference', expiry: 'never' });
  const list = (await (await gateway.request('/v1/keys?limit=100')).json()) as { data: { id: string; name: string }[] };
  const id = list.data.find(({ name }) => name === 'held fast')?.id ?? '';
  const confined = async (): Promise<unknown> =>
    ((await (await gateway.request(`/v1/keys/${id}`)).json()) as { confined: unknown }).confined;
  expect(await confined()).toBe(true);
  const shown = (await admin.get(`/portal/keys/${id}`)).text;
  expect(shown).toMatch(/Confined to it[\s\S]*Always/);
  expect(shown).toMatch(/name="confined" value="yes" checked/);
  for (const [value, expected] of [
    ['no', false],
    ['budget', null],
  ] as const) {
    await admin.post(`/portal/keys/${id}`, { name: 'held fast', confined: value });
    expect(await confined()).toBe(expected);
  }
  await gateway.request(`/v1/keys/${id}`, { method: 'DELETE' });
});

it('shows and sets the models of a key, in the list, on its page and in both forms', async () => {
  const fields = { name: 'one model', scope: 'inference', expiry: 'never', models: ' standin-chat \r\n' };
  await admin.post('/portal/keys', fields);
  const list = (await (await gateway.request('/v1/keys?limit=100')).json()) as { data: { id: string; name: string }[] };
  const id = list.data.find(({ name }) => name === 'one model')?.id ?? '';
  const models = async (): Promise<unknown> =>
    ((await (await gateway.request(`/v1/keys/${id}`)).json()) as { models: unknown }).models;
  expect(await models()).toEqual(['standin-chat']);
  expect((await admin.get('/portal/keys')).text).toMatch(/one model<\/a>[^]*?<span class="quiet">standin-chat</);
  expect((await admin.get(`/portal/keys/${id}`)).text).toMatch(/<textarea[^>]*name="models"[^>]*>\s*standin-chat</);
  const wrong = await admin.post(`/portal/keys/${id}`, { name: 'one model', models: 'a'.repeat(600) });
  expect([wrong.status, wrong.text.includes('id="models-problem"')]).toEqual([400, true]);
  expect(wrong.text).toContain('Not saved: see the marked field.');
  expect(wrong.text).not.toContain('models.0');
  await admin.post(`/portal/keys/${id}`, { name: 'one model', models: '' });
  expect(await models()).toBeNull();
  await gateway.request(`/v1/keys/${id}`, { method: 'DELETE' });
});

it('rejects an ambiguous number such as 1.000 for a limit', async () => {
  const made = await gateway.request('/v1/keys', { body: { name: 'limited' } });
  const { id } = (await made.json()) as { id: string };
  const limit = async (text: string): Promise<readonly unknown[]> => {
    const { status } = await admin.post(`/portal/keys/${id}`, { name: 'limited', requests_per_minute: text });
    const key = (await (await gateway.request(`/v1/keys/${id}`)).json()) as { requests_per_minute: number | null };
    return [text, status, key.requests_per_minute];
  };
  expect(await limit('2,000,000')).toEqual(['2,000,000', 303, 2_000_000]);
  for (const wrong of ['1.000', '60.0', '1,5', '60,5', '1.000.000', '1,00,000', '1.5', '1e3', '0x10', '٣']) {
    expect(await limit(wrong)).toEqual([wrong, 400, 2_000_000]);
  }
  expect(await limit(' 1 000 ')).toEqual([' 1 000 ', 303, 1000]);
});

it('shows the problem of a field once, beside the field', async () => {
  const { status, text } = await admin.post('/portal/keys', {
    name: 'wrong',
    requests_per_minute: 'abc',
    tokens_per_minute: '0',
    scope: 'inference',
    expiry: 'never',
  });
  expect(status).toBe(400);
  expect(text).toContain('Not saved: see the marked fields.');
  expect(text.match(/must be a number/g)).toHaveLength(1);
  expect(text.match(/Tokens per minute must be 1 or more/g)).toHaveLength(1);
  expect(text).not.toContain('requests_per_minute:');
});

it('accepts amounts as people write them, and rejects ambiguous ones', async () => {
  const alertAt = async (text: string): Promise<readonly unknown[]> => {
    const { status } = await admin.post('/portal/organization', { name: 'Default', wallet_alert_below: text });
    const { data } = (await (await gateway.request('/v1/organizations')).json()) as {
      data: { wallet_alert_below: string | null }[];
    };
    return [text, status, data[0]?.wallet_alert_below];
  };
  for (const [text, amount] of [
    ['1,000.50', '1000.5'],
    ['$5', '5'],
    ['5 USD', '5'],
    ['US$ 1 000', '1000'],
    ['usd 0.25', '0.25'],
  ] as const)
    expect(await alertAt(text)).toEqual([text, 303, amount]);
  for (const wrong of ['1,5', '1.000,50', '5 EUR', '$', '1,00,000'])
    expect(await alertAt(wrong)).toEqual([wrong, 400, '0.25']);
});

it('shows no notice for an unknown word in the address', async () => {
  for (const word of ['constructor', '__proto__', 'toString', 'nope']) {
    for (const path of ['/portal/keys', '/portal/wallet', '/portal/account', '/portal/costs', '/portal/clusters']) {
      const { status, text } = await admin.get(`${path}?notice=${word}`);
      expect([path, word, status, text.includes('class="notice good"')]).toEqual([path, word, 200, false]);
    }
  }
});

it('sets a cookie bound to its host and to TLS behind a TLS proxy', async () => {
  const proxied = { host: 'gateway.example', origin: 'https://gateway.example', 'x-forwarded-proto': 'https' };
  const opened = await useLink(gateway.url, await makeLink(gateway), proxied);
  expect(opened.status).toBe(303);
  expect(String(opened.headers['set-cookie'])).toMatch(/^__Host-headgate=.*; Path=\/; HttpOnly; Secure; SameSite=Lax$/);
  const headers = { ...proxied, accept: 'text/html', cookie: cookieOf(opened) };
  const overview = await send(`${gateway.url}/`, { headers });
  expect(overview.text).toContain('curl https://gateway.example/v1/chat/completions');
  // The same cookie over plain HTTP is no session.
  const plain = await send(`${gateway.url}/portal/keys`, { headers: { ...headers, 'x-forwarded-proto': 'http' } });
  expect(plain.status).toBe(303);
});
