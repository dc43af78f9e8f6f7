import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { parseId, uuidv7 } from '#base/id.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { freePort } from '#test/free-port.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type OidcServer, startOidcServer } from '#test/oidc.ts';
import {
  browse,
  makePerson,
  passwordOf,
  type Person,
  send,
  sendForm,
  type Shown,
  signInPerson,
  visitorWith,
} from '#test/portal/visitor.ts';

let database: TestDatabase;
let provider: OidcServer;
/** Nobody new comes in here. */
let closed: TestGateway;
/** New people come into an organization; on the same database. */
let open: TestGateway;
let person: Person;
/** Never comes by the provider. */
let other: Person;
let organizationId: string;

async function settings(port: number): Promise<Record<string, string>> {
  const url = `http://127.0.0.1:${port}`;
  provider = await startOidcServer(`${url}/sign-in/oidc/callback`);
  return {
    PORT: String(port),
    HEADGATE_PUBLIC_URL: url,
    HEADGATE_OIDC_ISSUER: provider.issuer,
    HEADGATE_OIDC_CLIENT_ID: provider.clientId,
    HEADGATE_OIDC_CLIENT_SECRET: provider.clientSecret,
    HEADGATE_OIDC_NAME: 'Water & Co',
  };
}

beforeAll(async () => {
  database = await createTestDatabase();
  const env = await settings(await freePort());
  closed = await startGateway({ databaseUrl: database.url, env });
  person = await makePerson(closed);
  other = await makePerson(closed);
  const opened = await closed.request('/v1/organizations', { body: { name: 'Newcomers' } });
  organizationId = ((await opened.json()) as { id: string }).id;
});

afterAll(async () => {
  await closed.stop();
  await open?.stop();
  await provider.stop();
  await database.drop();
});

const signIn = (gateway: TestGateway, jar?: Map<string, string>, next = '/portal/account'): Promise<Shown> =>
  browse(`${gateway.url}/sign-in/oidc?next=${encodeURIComponent(next)}`, jar);

const identities = (gateway: TestGateway) =>
  gateway.db.sql`select subject, user_id from user_identities order by created_at`;

describe('an invalid OIDC sign-in', () => {
  beforeEach(() => {
    provider.person = { sub: uuidv7(), email: person.email, email_verified: true };
  });

  it('returns 403 for an unverified address, even if an account with it exists', async () => {
    for (const claims of [{ email_verified: false }, {}]) {
      provider.person = { sub: uuidv7(), email: person.email, ...claims };
      const shown = await signIn(closed);
      expect(shown.status).toBe(403);
      expect(shown.text).toContain('You have no account here');
    }
    expect(await identities(closed)).toHaveLength(0);
  });

  it('returns 403 without an account', async () => {
    provider.person = { sub: uuidv7(), email: `${uuidv7()}@example.com`, email_verified: true, name: 'New' };
    expect((await signIn(closed)).status).toBe(403);
    provider.person = { sub: uuidv7() };
    expect((await signIn(closed)).status).toBe(403);
  });

  it('returns 403 when the user or the provider denies it', async () => {
    provider.person = null;
    const shown = await signIn(closed);
    expect(shown.status).toBe(403);
    expect(shown.text).toContain('Water &amp; Co did not sign you in');
  });

  it('is rejected in another browser, with another state, and a second time', async () => {
    const begun = await send(`${closed.url}/sign-in/oidc`, { headers: { accept: 'text/html' } });
    expect(begun.status).toBe(303);
    const asked = new URL(String(begun.headers.location));
    expect(asked.origin).toBe(provider.issuer);
    expect(asked.searchParams.get('code_challenge_method')).toBe('S256');
    expect(asked.searchParams.get('nonce')).toMatch(/^[\w-]{43}$/);
    const [kept = ''] = begun.headers['set-cookie'] ?? [];
    expect(kept).toMatch(/^headgate-\d+-oidc=[\w.-]+; Max-Age=600; Path=\/; HttpOnly; SameSite=Lax$/);
    const callback = `${closed.url}/sign-in/oidc/callback`;
    const state = asked.searchParams.get('state') ?? '';
    const [cookie = ''] = kept.split(';');
    const tries: readonly [string, string | null][] = [
      [`?code=x&state=${state}`, null],
      [`?code=x&state=${'a'.repeat(43)}`, cookie],
      [`?code=x`, cookie],
      ['', cookie],
      [`?code=wrong&state=${state}`, cookie],
      [`?code=x&state=${state}`, 'headgate-oidc=x.y.z'],
    ];
    for (const [query, with_] of tries) {
      const shown = await send(`${callback}${query}`, { headers: { accept: 'text/html', cookie: with_ } });
      expect([query, shown.status]).toEqual([query, 403]);
      expect(String(shown.headers['set-cookie'] ?? '')).not.toMatch(/headgate-\d+=[\w-]{43}/);
    }
    expect(await identities(closed)).toHaveLength(0);
  });

  it('is redirected to the public address when started over plain HTTP on another host', async () => {
    const shown = await send(`${closed.url}/sign-in/oidc?next=//evil.example`, {
      headers: { accept: 'text/html', host: 'gateway.example' },
    });
    expect([shown.status, shown.headers.location]).toEqual([303, `${closed.url}/sign-in/oidc?next=%2F`]);
    const back = await send(`${closed.url}/sign-in/oidc/callback?code=x&state=y`, {
      headers: { accept: 'text/html', host: 'gateway.example' },
    });
    expect(back.status).toBe(403);
  });
});

describe('an OIDC sign-in', () => {
  it('uses the account of the verified address, and the same account after the address changes', async () => {
    const page = await send(`${closed.url}/?next=%2Fportal%2Fkeys`, { headers: { accept: 'text/html' } });
    expect(page.text).toContain('href="/sign-in/oidc?next=%2Fportal%2Fkeys"');
    expect(page.text).toContain('Sign in with Water &amp; Co');
    const sub = uuidv7();
    provider.person = { sub, email: person.email.toUpperCase(), email_verified: true, name: 'Ada' };
    const shown = await signIn(closed);
    expect(shown.status).toBe(200);
    expect(shown.text).toContain(person.email);
    expect(await identities(closed)).toEqual([{ subject: sub, user_id: parseId('user', person.id) }]);
    provider.person = { sub, email: `${uuidv7()}@example.com`, email_verified: false };
    expect((await signIn(closed)).text).toContain(person.email);
    const rows = await closed.db
      .sql`select action from audit_log where target_id = ${person.id} and action = 'user.identity_linked'`;
    expect(rows).toHaveLength(1);
  });

  it('succeeds with the same browser and identity once an account exists', async () => {
    const jar = new Map<string, string>();
    const late = { email: `${uuidv7()}@example.com`, name: 'Late' };
    provider.person = { sub: uuidv7(), email: late.email, email_verified: true };
    expect((await signIn(closed, jar)).status).toBe(403);
    const body = { ...late, password: passwordOf };
    expect((await closed.request('/v1/users', { body })).status).toBe(201);
    const shown = await signIn(closed, jar, '/');
    expect([shown.status, /<h1[^>]*>([^<]*)/.exec(shown.text)?.[1]?.trim()]).toEqual([200, 'Overview']);
  });

  it("ends the browser's former session, and leaves nothing of the attempt", async () => {
    provider.person = { sub: uuidv7(), email: person.email, email_verified: true };
    const jar = new Map<string, string>();
    await signIn(closed, jar);
    const name = [...jar.keys()].find((one) => one.startsWith(closed.url) && !one.endsWith('-oidc')) ?? '';
    const before = `${name.split(' ')[1]}=${jar.get(name)}`;
    await signIn(closed, jar);
    expect([...jar.keys()].filter((one) => one.endsWith('-oidc'))).toEqual([]);
    expect(`${name.split(' ')[1]}=${jar.get(name)}`).not.toBe(before);
    expect((await (await visitorWith(closed, before)).get('/portal/models')).status).toBe(303);
  });

  it('removes passwords, links and sessions from an account that others created', async () => {
    const made = await makePerson(closed);
    const before = await signInPerson(closed, made.email);
    const path = `/v1/users/${made.id}/reset-link`;
    const { link } = (await (await closed.request(path, { method: 'POST' })).json()) as { link: string };
    const token = new URL(link, closed.url).searchParams.get('token') ?? '';
    const earlier = { sub: uuidv7(), email: made.email, email_verified: true };
    provider.person = earlier;
    expect((await signIn(closed)).text).toContain(made.email);
    expect((await before.get('/portal/models')).status).toBe(303);
    const again = await sendForm(closed.url, '/sign-in', { email: made.email, password: passwordOf });
    expect(again.status).toBe(403);
    expect((await sendForm(closed.url, '/reset-password', { token, password: passwordOf })).status).toBe(404);
    provider.person = { ...earlier, sub: uuidv7() };
    expect((await signIn(closed)).text).toContain(made.email);
    provider.person = { sub: earlier.sub, email: `${uuidv7()}@example.com`, email_verified: true };
    expect((await signIn(closed)).status).toBe(403);
  });

  it('loses its link when another user changes the address or sets a password by a reset link', async () => {
    for (const change of ['address', 'reset link'] as const) {
      const made = await makePerson(closed);
      const stranger = { sub: uuidv7(), email: `${uuidv7()}@example.com`, email_verified: true };
      const put = async (email: string) => {
        const changed = await closed.request(`/v1/users/${made.id}`, { method: 'PUT', body: { email } });
        return changed.status;
      };
      const reset = async () => {
        await closed.db.sql`update users set email = ${made.email}, email_key = ${made.email}
          where id = ${parseId('user', made.id) ?? ''}`;
        const link = await closed.request(`/v1/users/${made.id}/reset-link`, { method: 'POST' });
        const path = ((await link.json()) as { link: string }).link;
        const token = new URL(path, closed.url).searchParams.get('token') ?? '';
        return (await sendForm(closed.url, '/reset-password', { token, password: passwordOf })).status;
      };
      expect(await put(stranger.email)).toBe(200);
      provider.person = stranger;
      expect((await signIn(closed)).text).toContain(stranger.email);
      expect(await (change === 'address' ? put(made.email) : reset())).toBe(change === 'address' ? 200 : 303);
      expect([change, (await signIn(closed)).status]).toEqual([change, 403]);
      const rows = await closed.db.sql`select before from audit_log
        where target_id = ${made.id} and action = 'user.identity_removed'`;
      expect(rows).toEqual([{ before: { issuer: provider.issuer, subject: stranger.sub } }]);
    }
  });

  it('is listed in the account, and removed there with the form token', async () => {
    const made = await makePerson(closed);
    const sub = uuidv7();
    provider.person = { sub, email: made.email, email_verified: true };
    const jar = new Map<string, string>();
    expect((await signIn(closed, jar)).text).toContain(sub);
    const [name = '', value] = [...jar].find(([one]) => one.startsWith(closed.url)) ?? [];
    const visitor = await visitorWith(closed, `${name.split(' ')[1]}=${value}`);
    const fields = { issuer: provider.issuer, subject: sub };
    const path = '/portal/account/identities/remove';
    expect((await visitor.post(path, { ...fields, form_token: 'x' })).status).toBe(403);
    expect((await visitor.post(path, { ...fields, subject: 'another' })).status).toBe(404);
    expect((await visitor.post(path, { ...fields, subject: '\0' })).status).toBe(400);
    const stranger = await signInPerson(closed, (await makePerson(closed)).email);
    expect((await stranger.post(path, fields)).status).toBe(404);
    const api = `/v1/users/${made.id}/identities`;
    const listed = async () => ((await (await closed.request(api)).json()) as { data: object[] }).data;
    expect(await listed()).toEqual([{ ...fields, linked_at: expect.any(String) }]);
    const removed = await visitor.post(path, fields);
    expect([removed.status, removed.headers.location]).toEqual([303, '/portal/account?notice=identity']);
    expect((await visitor.get('/portal/account')).text).not.toContain(sub);
    expect(await listed()).toEqual([]);
    provider.person = { sub, email: `${uuidv7()}@example.com`, email_verified: true };
    expect((await signIn(closed)).status).toBe(403);
  });

  it('names the setting to fix when the gateway does not see TLS, and does not loop', async () => {
    const { issuer, clientId, clientSecret } = provider;
    const hidden = await startGateway({
      env: {
        HEADGATE_PUBLIC_URL: 'https://gate.example',
        HEADGATE_OIDC_ISSUER: issuer,
        HEADGATE_OIDC_CLIENT_ID: clientId,
        HEADGATE_OIDC_CLIENT_SECRET: clientSecret,
      },
    });
    const asked = async (host: string): Promise<Shown> =>
      send(`${hidden.url}/sign-in/oidc`, { headers: { accept: 'text/html', host } });
    const here = await asked('gate.example');
    expect([here.status, here.headers.location]).toEqual([403, undefined]);
    expect(here.text).toContain('in HEADGATE_TRUSTED_PROXIES');
    const elsewhere = await asked('other.example');
    expect([elsewhere.status, elsewhere.headers.location]).toEqual([303, 'https://gate.example/sign-in/oidc?next=%2F']);
    await hidden.stop();
  });

  it('creates an account in the configured organization with the configured role', async () => {
    const port = Number(new URL(closed.url).port);
    await closed.stop();
    const { issuer, clientId, clientSecret } = provider;
    open = await startGateway({
      databaseUrl: database.url,
      env: {
        PORT: String(port),
        HEADGATE_PUBLIC_URL: `http://127.0.0.1:${port}`,
        HEADGATE_OIDC_ISSUER: issuer,
        HEADGATE_OIDC_CLIENT_ID: clientId,
        HEADGATE_OIDC_CLIENT_SECRET: clientSecret,
        HEADGATE_OIDC_ORGANIZATION: organizationId,
        HEADGATE_OIDC_ROLE: 'admin',
      },
      keepLimits: true,
    });
    const email = `${uuidv7()}@example.com`;
    provider.person = { sub: uuidv7(), email, email_verified: false };
    expect((await signIn(open)).status).toBe(403);
    provider.person = { sub: uuidv7(), email, email_verified: true, name: 'Grace <b>Hopper</b>' };
    const shown = await signIn(open, new Map(), '/portal/invitations');
    expect(shown.status).toBe(200);
    expect(shown.text).toContain('Newcomers');
    expect(shown.text).toContain('Grace &lt;b&gt;Hopper&lt;/b&gt;');
    const [row] = await open.db.sql`
      select m.role, u.password_hash from users u join memberships m on m.user_id = u.id where u.email = ${email}`;
    expect(row).toEqual({ role: 'admin', password_hash: null });
  });

  it('shows that the provider is unreachable, and a password still works', async () => {
    await provider.stop();
    const jar = new Map<string, string>();
    const asked = await send(
      `${open.url}/sign-in/oidc/callback?code=x&state=${'s'.repeat(43)}&iss=${encodeURIComponent(provider.issuer)}`,
      {
        headers: {
          accept: 'text/html',
          cookie: `headgate-${new URL(open.url).port}-oidc=${['s', 'n', 'v'].map((one) => one.repeat(43)).join('.')}.Lw`,
        },
      },
    );
    expect(asked.status).toBe(503);
    expect(asked.text).toContain('is unavailable. Try again later');
    expect(jar.size).toBe(0);
    const shown = await sendForm(open.url, '/sign-in', { email: other.email, password: passwordOf });
    expect(shown.status).toBe(303);
  });
});
