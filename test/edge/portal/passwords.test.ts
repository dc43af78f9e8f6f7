import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseId, uuidv7 } from '#base/id.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { linkIn, type MailServer, startMailServer } from '#test/mail.ts';
import {
  cookieOf,
  makePerson,
  passwordOf,
  type Person,
  send,
  sendForm,
  type SentOptions,
  type Shown,
  signInPerson,
  signInVisitor,
  type Visitor,
  visitorWith,
} from '#test/portal/visitor.ts';

const publicUrl = 'https://gateway.example.com';
const another = 'another good password';

let mail: MailServer;
let gateway: TestGateway;
/** The same without a mail server. */
let silent: TestGateway;

beforeAll(async () => {
  mail = await startMailServer();
  const env = { HEADGATE_TRUSTED_PROXIES: '127.0.0.1' };
  [gateway, silent] = await Promise.all([
    startGateway({ env: { ...env, HEADGATE_SMTP_URL: mail.url, HEADGATE_PUBLIC_URL: publicUrl } }),
    startGateway({ env }),
  ]);
});

afterAll(async () => {
  await Promise.all([gateway.stop(), silent.stop()]);
  await mail.stop();
});

let hosts = 0;
const fromAnew = (): string => {
  hosts += 1;
  return `10.5.${Math.floor(hosts / 250)}.${(hosts % 250) + 1}`;
};

const signIn = (to: TestGateway, email: string, password: string): Promise<Shown> =>
  sendForm(to.url, '/sign-in', { email, password }, { 'x-forwarded-for': fromAnew() });

const forget = (email: string, headers: SentOptions['headers'] = {}): Promise<Shown> =>
  sendForm(gateway.url, '/sign-in/forgot', { email }, { 'x-forwarded-for': fromAnew(), ...headers });

const use = (to: TestGateway, token: string, password: string): Promise<Shown> =>
  sendForm(to.url, '/reset-password', { token, password });

const tokenOf = (link: string): string => new URL(link, publicUrl).searchParams.get('token') ?? '';

const change = (visitor: Visitor, fields: Record<string, string>): Promise<Shown> =>
  visitor.post('/portal/account', { what: 'password', ...fields });

async function resetLinkFor(person: Person): Promise<string> {
  const made = await silent.request(`/v1/users/${person.id}/reset-link`, { method: 'POST' });
  expect(made.status).toBe(201);
  return tokenOf(((await made.json()) as { link: string }).link);
}

describe('an invalid password change', () => {
  it('is rejected without the current password, in any session', async () => {
    const { email } = await makePerson(silent);
    const visitor = await signInPerson(silent, email);
    for (const fields of [{ password: another }, { password: another, password_current_password: 'not it' }]) {
      const { status, text } = await change(visitor, fields);
      expect(status).toBe(400);
      expect(text).toContain('current_password');
    }
    expect((await signIn(silent, email, passwordOf)).status).toBe(303);
  });

  it("is rejected without the current password in a platform admin's open browser", async () => {
    const admin = await signInVisitor(silent);
    expect((await change(admin, { password: passwordOf })).status).toBe(303);
    expect((await change(admin, { password: another })).status).toBe(400);
    expect((await change(admin, { password: another, password_current_password: passwordOf })).status).toBe(303);
  });

  it('is rejected when the new password is too short', async () => {
    const { email } = await makePerson(silent);
    const visitor = await signInPerson(silent, email);
    const shown = await change(visitor, { password: 'short', password_current_password: passwordOf });
    expect(shown.status).toBe(400);
    expect(shown.text).toContain('must have 8 to 128 characters');
  });

  it('is rejected by a reset link for a user whom the maker may not change', async () => {
    const opened = await silent.request('/v1/organizations', { body: { name: 'Others' } });
    const { management_key: key } = (await opened.json()) as { management_key: string };
    const person = await makePerson(silent);
    const path = `/v1/users/${person.id}/reset-link`;
    expect((await silent.request(path, { method: 'POST', key })).status).toBe(404);
    const admin = await makePerson(silent, { role: 'admin' });
    const owner = await makePerson(silent, { role: 'owner' });
    const visitor = await signInPerson(silent, admin.email);
    const refused = await visitor.post('/portal/reset-links', { user_id: owner.id });
    expect(refused.status).toBe(403);
    expect(refused.text).not.toContain('/reset-password');
    expect((await visitor.get(`/portal/users/${owner.id}`)).text).not.toContain('/portal/reset-links');
  });

  it('is rejected by a reset link for a user who is also in another organization', async () => {
    const opened = await silent.request('/v1/organizations', { body: { name: 'Others' } });
    const { id, management_key: key } = (await opened.json()) as { id: string; management_key: string };
    const person = await makePerson(silent, {}, key);
    const [home] = await silent.db.sql`select id from organizations where platform`;
    const membership = [home?.['id'], parseId('user', person.id)] as string[];
    await silent.db
      .sql`insert into memberships values (${membership[0] ?? ''}, ${membership[1] ?? ''}, 'member', now())`;
    const made = await silent.request(`/v1/users/${person.id}/reset-link`, { method: 'POST', key });
    expect([id, made.status]).toEqual([id, 403]);
  });
});

describe('a password change', () => {
  it('keeps the session where it was made, ends the others, and voids sign-in and reset links', async () => {
    const person = await makePerson(silent);
    const [here, there] = [await signInPerson(silent, person.email), await signInPerson(silent, person.email)];
    const token = await resetLinkFor(person);
    const shown = await change(here, { password: another, password_current_password: passwordOf });
    expect([shown.status, shown.headers.location]).toEqual([303, '/portal/account?notice=password']);
    expect((await here.get('/portal/account')).status).toBe(200);
    expect((await there.get('/portal/account')).status).toBe(303);
    expect((await use(silent, token, 'yet another password')).status).toBe(404);
    expect((await signIn(silent, person.email, passwordOf)).status).toBe(403);
    expect((await signIn(silent, person.email, another)).status).toBe(303);
  });

  it('by the API ends all sessions of the user', async () => {
    const person = await makePerson(silent);
    const visitor = await signInPerson(silent, person.email);
    const changed = await silent.request(`/v1/users/${person.id}`, { method: 'PUT', body: { password: another } });
    expect(changed.status).toBe(200);
    expect((await visitor.get('/portal/models')).status).toBe(303);
  });

  it('is rolled back when a session cannot be ended', async () => {
    const person = await makePerson(silent);
    const visitor = await signInPerson(silent, person.email);
    const { sql } = silent.db;
    await sql`create function refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$`;
    await sql`create trigger refuse before update of ended_at on sessions for each row execute function refuse()`;
    const changed = await silent.request(`/v1/users/${person.id}`, { method: 'PUT', body: { password: another } });
    await sql`drop trigger refuse on sessions`;
    expect(changed.status).toBe(500);
    expect((await visitor.get('/portal/models')).status).toBe(200);
    expect((await signIn(silent, person.email, passwordOf)).status).toBe(303);
  });

  it('and a renewed membership revive no session', async () => {
    const person = await makePerson(silent);
    await makePerson(silent, { role: 'admin' });
    const opened = await silent.request('/v1/organizations', { body: { name: 'Second' } });
    const { id } = (await opened.json()) as { id: string };
    const [user, organization] = [parseId('user', person.id) ?? '', parseId('org', id) ?? ''];
    const visitor = await signInPerson(silent, person.email);
    const { sql } = silent.db;
    await sql`insert into memberships values (${organization}, ${user}, 'member', now())`;
    const [home] =
      await sql`select organization_id as id from memberships where user_id = ${user} and organization_id <> ${organization}`;
    const homeId = String(home?.['id']);
    const own = `org_${homeId.replaceAll('-', '')}`;
    const removed = await silent.request(`/v1/users/${person.id}?organization_id=${own}`, { method: 'DELETE' });
    expect(removed.status).toBe(204);
    await sql`insert into memberships values (${homeId}, ${user}, 'member', now())`;
    expect((await visitor.get('/portal/models')).status).toBe(303);
  });
});

describe('a password reset link', () => {
  it('is requested with the same response for all addresses, and is sent to those with an account', async () => {
    const { email } = await makePerson(gateway);
    const known = await forget(` ${email.toUpperCase()} `);
    const unknown = await forget(`${uuidv7()}@example.com`);
    const none = await forget('no address');
    expect(known.status).toBe(200);
    expect(unknown.text).toBe(known.text);
    expect(none.text).toBe(known.text);
    const letter = await mail.next(email);
    expect(letter.from).toBe('headgate@gateway.example.com');
    const link = linkIn(letter, publicUrl);
    const shown = await send(`${gateway.url}${link}`, { headers: { accept: 'text/html' } });
    expect([shown.status, shown.headers['set-cookie']]).toEqual([200, undefined]);
    const reset = await use(gateway, tokenOf(link), another);
    expect([reset.status, reset.headers.location]).toEqual([303, '/']);
    expect((await (await visitorWith(gateway, cookieOf(reset))).get('/')).text).toContain(email);
    expect(mail.letters.filter(({ to }) => !to.includes(email))).toEqual([]);
    expect(gateway.logLines.join('')).not.toContain(tokenOf(link));
  });

  it('uses the configured public URL, not the Host of the request', async () => {
    const { email } = await makePerson(gateway);
    const host = 'evil.example';
    const headers = { host, origin: `https://${host}`, 'x-forwarded-proto': 'https' };
    expect((await forget(email, headers)).status).toBe(200);
    const { text } = await mail.next(email);
    expect(text).toContain(`${publicUrl}/reset-password?token=`);
    expect(text).not.toContain(host);
  });

  it('is sent three times an hour to one account, and requested twenty times from one address', async () => {
    const { email } = await makePerson(gateway);
    const last = await makePerson(gateway);
    for (let index = 0; index < 5; index += 1) expect((await forget(email)).status).toBe(200);
    await forget(last.email);
    await mail.next(last.email);
    for (let index = 0; index < 3; index += 1) await mail.next(email);
    expect(mail.letters.filter(({ to }) => to.includes(email))).toHaveLength(3);
    const from = { 'x-forwarded-for': '10.6.0.1' };
    const seen: number[] = [];
    for (let index = 0; index < 21; index += 1) seen.push((await forget(`${uuidv7()}@example.com`, from)).status);
    expect(seen).toEqual([...Array.from({ length: 20 }, () => 200), 429]);
    // One customer of a provider has a /64 of addresses.
    const asked = async (index: number): Promise<number> =>
      (await forget(`${uuidv7()}@example.com`, { 'x-forwarded-for': `2001:db8:7:8::${index + 1}` })).status;
    for (let index = 0; index < 20; index += 1) expect(await asked(index)).toBe(200);
    expect(await asked(20)).toBe(429);
  });

  it('works once, also for concurrent requests, within an hour', async () => {
    const person = await makePerson(silent);
    const token = await resetLinkFor(person);
    for (let opened = 0; opened < 3; opened += 1) {
      const shown = await send(`${silent.url}/reset-password?token=${token}`, { headers: { accept: 'text/html' } });
      expect(shown.status).toBe(200);
    }
    expect((await use(silent, token, 'short')).status).toBe(400);
    const together = await Promise.all([1, 2, 3].map((index) => use(silent, token, `${another} ${index}`)));
    expect(together.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([303, 404, 404]);
    const late = await resetLinkFor(person);
    await silent.db.sql`update reset_links set expires_at = now() - interval '1 second' where used_at is null`;
    expect((await use(silent, late, another)).status).toBe(404);
    const page = await send(`${silent.url}/reset-password?token=${late}`, { headers: { accept: 'text/html' } });
    expect(page.status).toBe(404);
  });

  it('ends every session and every other reset link', async () => {
    const person = await makePerson(silent);
    const visitor = await signInPerson(silent, person.email);
    const [first, second] = [await resetLinkFor(person), await resetLinkFor(person)];
    expect((await use(silent, first, another)).status).toBe(303);
    expect((await visitor.get('/portal/models')).status).toBe(303);
    expect((await use(silent, second, 'one more password')).status).toBe(404);
  });

  it('is void after the address was changed', async () => {
    const person = await makePerson(silent);
    const token = await resetLinkFor(person);
    const body = { email: `${uuidv7()}@example.com` };
    expect((await silent.request(`/v1/users/${person.id}`, { method: 'PUT', body })).status).toBe(200);
    expect((await use(silent, token, another)).status).toBe(404);
  });

  it('is stored as a hash, has an audit entry, and is shown to its maker when no mail server is set', async () => {
    const person = await makePerson(silent);
    const admin = await signInVisitor(silent);
    const page = (await admin.get(`/portal/users/${person.id}`)).text;
    expect(page).toMatch(new RegExp(`action="/portal/reset-links">[^]*name="user_id" value="${person.id}"`));
    const shown = await admin.post('/portal/reset-links', { user_id: person.id });
    expect(shown.status).toBe(200);
    const token = /\/reset-password\?token=([\w-]{43})/.exec(shown.text)?.[1] ?? '';
    expect(shown.text).toContain(`${silent.url}/reset-password?token=${token}`);
    const kept = await silent.db.sql`select encode(token_hash, 'escape') as hash, r.* from reset_links r`;
    expect(JSON.stringify(kept)).not.toContain(token);
    expect((await use(silent, token, another)).status).toBe(303);
    const rows = await silent.db.sql`select action from audit_log where target_id = ${person.id} order by id`;
    expect(rows.map(({ action }) => action)).toEqual(['user.created', 'reset_link.made', 'user.password_reset']);
    expect(silent.logLines.join('')).not.toContain(token);
  });

  it('is not created while the mail server is unreachable, which the page says', async () => {
    const away = await startGateway({
      env: { HEADGATE_SMTP_URL: 'smtp://127.0.0.1:1', HEADGATE_PUBLIC_URL: publicUrl },
    });
    try {
      const person = await makePerson(away);
      const made = await away.request(`/v1/users/${person.id}/reset-link`, { method: 'POST' });
      expect([made.status, await made.text()]).toEqual([503, expect.stringContaining('Email cannot be sent')]);
      expect(await away.db.sql`select id from reset_links`).toHaveLength(0);
    } finally {
      await away.stop();
    }
  });
});

it('advises to ask an administrator when a password is forgotten and no mail server is set', async () => {
  const shown = await send(`${silent.url}/sign-in/forgot`, { headers: { accept: 'text/html' } });
  expect(shown.status).toBe(200);
  expect(shown.text).toContain('An administrator of your organization');
  expect(shown.text).not.toContain('<form');
});

it('changes name and address in the account, the address only with the password', async () => {
  const { email } = await makePerson(silent);
  const visitor = await signInPerson(silent, email);
  const account = (fields: Record<string, string>) => visitor.post('/portal/account', fields);
  expect((await account({ what: 'name', name: 'Grace <b>' })).headers.location).toBe('/portal/account?notice=name');
  expect((await visitor.get('/portal/account')).text).toContain('value="Grace &lt;b&gt;"');
  const next = `${uuidv7()}@example.com`;
  expect((await account({ what: 'email', email: next })).status).toBe(400);
  expect((await account({ what: 'email', email: next, email_current_password: passwordOf })).status).toBe(303);
  expect((await signIn(silent, next, passwordOf)).status).toBe(303);
});
