import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { linkIn, type MailServer, startMailServer } from '#test/mail.ts';
import {
  cookieOf,
  makePerson,
  passwordOf,
  send,
  sendForm,
  type Shown,
  signInPerson,
  signInVisitor,
  type Visitor,
  visitorWith,
} from '#test/portal/visitor.ts';

const publicUrl = 'https://gateway.example.com';

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway();
  admin = await signInVisitor(gateway);
});

afterAll(() => gateway.stop());

const anybody = (): string => `${uuidv7()}@example.com`;

interface Made {
  readonly id: string;
  readonly link: string;
}

async function invite(email: string, fields: object = {}, key?: string): Promise<Made & { readonly token: string }> {
  const body = { email, ...fields };
  const made = await gateway.request('/v1/invitations', { body, ...(key !== undefined && { key }) });
  expect(made.status).toBe(201);
  const answer = (await made.json()) as Made;
  return { ...answer, token: new URL(answer.link, gateway.url).searchParams.get('token') ?? '' };
}

async function openOrganization(name: string): Promise<{ readonly id: string; readonly key: string }> {
  const opened = await gateway.request('/v1/organizations', { body: { name } });
  const { id, management_key: key } = (await opened.json()) as { id: string; management_key: string };
  return { id, key };
}

const show = (token: string, headers: Record<string, string> = {}): Promise<Shown> =>
  send(`${gateway.url}/invitation?token=${token}`, { headers: { accept: 'text/html', ...headers } });

const accept = (token: string, fields: Record<string, string> = {}): Promise<Shown> =>
  sendForm(gateway.url, '/invitation', { token, as: 'new', name: 'Ada', password: passwordOf, ...fields });

const openIds = async (key?: string): Promise<readonly string[]> => {
  const list = await gateway.request('/v1/invitations?limit=500', key === undefined ? {} : { key });
  return ((await list.json()) as { data: { id: string }[] }).data.map(({ id }) => id);
};

describe('an invalid invitation', () => {
  it('returns 403 for a role that the inviter may not give, by the API and on the page', async () => {
    const { email } = await makePerson(gateway, { role: 'admin' });
    const visitor = await signInPerson(gateway, email);
    const page = await visitor.get('/portal/invitations');
    expect(page.text).toContain('value="admin"');
    expect(page.text).not.toContain('value="owner"');
    const shown = await visitor.post('/portal/invitations', { email: anybody(), role: 'owner' });
    expect([shown.status, shown.text.includes('/invitation?token=')]).toEqual([403, false]);
    const { key } = await openOrganization('Keys act as admin');
    expect((await gateway.request('/v1/invitations', { key, body: { email: anybody(), role: 'owner' } })).status).toBe(
      403,
    );
  });

  it('returns 409 for a member, and 400 for an invalid address', async () => {
    const { email } = await makePerson(gateway);
    const member = await gateway.request('/v1/invitations', { body: { email: email.toUpperCase() } });
    expect(member.status).toBe(409);
    for (const wrong of ['', 'no address', 'a@b', 'a b@example.com', 'a@example.com\r\nbcc: b@example.com']) {
      expect((await gateway.request('/v1/invitations', { body: { email: wrong } })).status).toBe(400);
    }
  });

  it('returns 403 to members', async () => {
    const { email } = await makePerson(gateway);
    const visitor = await signInPerson(gateway, email);
    expect((await visitor.get('/portal/invitations')).status).toBe(403);
    expect((await visitor.post('/portal/invitations', { email: anybody(), role: 'member' })).status).toBe(403);
    expect((await visitor.get('/')).text).not.toContain('/portal/invitations');
  });

  it('returns 404 to other organizations, which cannot see or revoke it', async () => {
    const { id } = await invite(anybody());
    const { key } = await openOrganization('Others');
    expect(await openIds(key)).toEqual([]);
    expect((await gateway.request(`/v1/invitations/${id}`, { method: 'DELETE', key })).status).toBe(404);
    expect(await openIds()).toContain(id);
  });

  it.each([[''], ['x'], ['a'.repeat(43)], ['<script>alert(1)</script>']])(
    'returns 404 for the link %j',
    async (token) => {
      expect((await show(token)).status).toBe(404);
      expect((await accept(token)).status).toBe(404);
    },
  );
});

describe('the existence of an account for an address', () => {
  it('is shown neither to the inviter nor on the page of the link', async () => {
    const { key } = await openOrganization('Curious');
    const { email } = await makePerson(gateway);
    const told: unknown[] = [];
    for (const address of [email, anybody()]) {
      const { id, link, token, ...rest } = await invite(address, {}, key);
      const page = await show(token);
      expect([id.length, link.includes(token)]).toEqual([36, true]);
      const text = page.text.replaceAll(token, 'TOKEN').replaceAll(address, 'ADDRESS');
      told.push([{ ...rest, email: '', created_at: 0, expires_at: 0 }, page.status, text]);
    }
    expect(told[1]).toEqual(told[0]);
  });
});

describe('an invitation', () => {
  it('creates an account once, with its role, and signs in', async () => {
    const email = anybody();
    const { id, token } = await invite(email, { role: 'admin' });
    for (let opened = 0; opened < 3; opened += 1) {
      const page = await show(token);
      expect([page.status, page.headers['set-cookie']]).toEqual([200, undefined]);
    }
    expect((await accept(token, { password: 'short' })).status).toBe(400);
    expect((await accept(token, { name: ' ' })).status).toBe(400);
    const together = await Promise.all([1, 2, 3].map(() => accept(token)));
    const statuses = together.map(({ status }) => status).toSorted((a, b) => a - b);
    expect(statuses[0]).toBe(303);
    expect(statuses.filter((status) => status === 303)).toHaveLength(1);
    const won = together.find(({ status }) => status === 303);
    const visitor = await visitorWith(gateway, won === undefined ? '' : cookieOf(won));
    expect((await visitor.get('/portal/keys')).status).toBe(200);
    expect((await show(token)).status).toBe(404);
    expect(await openIds()).not.toContain(id);
    expect((await signInPerson(gateway, email)).cookie).not.toBe('');
    const rows = await gateway.db.sql`select action from audit_log where target_id = ${id} order by id`;
    expect(rows.map(({ action }) => action)).toEqual(['invitation.created', 'invitation.accepted']);
    expect(gateway.logLines.join('')).not.toContain(token);
  });

  it('creates no second account: an existing user signs in, returns and joins', async () => {
    const { key } = await openOrganization('Second home');
    const person = await makePerson(gateway);
    const { token } = await invite(person.email, { role: 'admin' }, key);
    const taken = await accept(token);
    expect(taken.status).toBe(409);
    const next = `/invitation?token=${token}`;
    expect((await show(token)).text).toContain(`href="/?next=${encodeURIComponent(next)}"`);
    const fields = { email: person.email, password: passwordOf, next };
    const back = await sendForm(gateway.url, '/sign-in', fields);
    expect([back.status, back.headers.location]).toEqual([303, next]);
    const visitor = await visitorWith(gateway, cookieOf(back));
    const page = await visitor.get(next);
    expect(page.text).toContain(`signed in as <strong>${person.email}</strong>`);
    expect((await visitor.post('/invitation', { token, as: 'member', form_token: 'x' })).status).toBe(403);
    const joined = await visitor.post('/invitation', { token, as: 'member' });
    expect([joined.status, joined.headers.location]).toEqual([303, '/']);
    const there = await visitorWith(gateway, cookieOf(joined));
    expect((await there.get('/')).text).toContain('<summary>Second home</summary>');
    expect((await there.get('/portal/invitations')).status).toBe(200);
    expect((await visitor.get('/portal/models')).status).toBe(303);
  });

  it('is bound to its address: a user with another address cannot join', async () => {
    const { key } = await openOrganization('Not yours');
    const { token } = await invite(anybody(), {}, key);
    const { email } = await makePerson(gateway);
    const visitor = await signInPerson(gateway, email);
    const shown = await visitor.post('/invitation', { token, as: 'member' });
    expect(shown.status).toBe(403);
    expect((await show(token)).status).toBe(200);
  });

  it('replaces the earlier one for the same address', async () => {
    const email = anybody();
    const [first, second] = [await invite(email), await invite(email.toUpperCase())];
    expect((await show(first.token)).status).toBe(404);
    expect((await show(second.token)).status).toBe(200);
  });

  it('ends when revoked, after a week, with its inviter, and with its organization', async () => {
    const revoked = await invite(anybody());
    const shown = await admin.post(`/portal/invitations/${revoked.id}/revoke`);
    expect([shown.status, shown.headers.location]).toEqual([303, '/portal/invitations?notice=revoked']);
    const old = await invite(anybody());
    const { sql } = gateway.db;
    await sql`update invitations set expires_at = expires_at - interval '7 days' where id = ${old.id.slice(4)}`;
    const inviter = await makePerson(gateway, { role: 'admin' });
    const made = await (
      await signInPerson(gateway, inviter.email)
    ).post('/portal/invitations', {
      email: anybody(),
      role: 'admin',
    });
    const left = /\/invitation\?token=([\w-]{43})/.exec(made.text)?.[1] ?? '';
    expect((await show(left)).status).toBe(200);
    expect((await gateway.request(`/v1/users/${inviter.id}`, { method: 'DELETE' })).status).toBe(204);
    const { id, key } = await openOrganization('Closing');
    const closing = await invite(anybody(), {}, key);
    expect((await gateway.request(`/v1/organizations/${id}`, { method: 'DELETE' })).status).toBe(200);
    for (const token of [revoked.token, old.token, left, closing.token]) {
      expect((await show(token)).status).toBe(404);
      expect((await accept(token)).status).toBe(404);
    }
  });

  it('uses the same word for a role on all pages', async () => {
    const email = anybody();
    const { token } = await invite(email, { role: 'admin' });
    const list = (await admin.get('/portal/invitations')).text;
    expect(list).toMatch(/<option value="admin"\s*>Administrator<\/option>/);
    expect(list.slice(list.indexOf(email))).toMatch(/^[^]*?<span class="badge[^>]*>\s*Administrator\s*<\/span>/);
    expect(list).not.toMatch(/>\s*[Aa]dmin\s*</);
    expect((await show(token)).text).toMatch(/with the\s+role Administrator\./);
    const person = await makePerson(gateway, { role: 'admin' });
    const { memberships } = (await (await gateway.request(`/v1/users/${person.id}`)).json()) as {
      memberships: { organization_id: string }[];
    };
    const organization = (await admin.get(`/portal/organizations/${memberships[0]?.organization_id}`)).text;
    expect(organization.slice(organization.indexOf(person.email))).toMatch(/^[^]*?<td [^>]*>Administrator<\/td>/);
  });

  it('is shown to its inviter when no mail server is configured, and is stored as a hash', async () => {
    const email = anybody();
    const shown = await admin.post('/portal/invitations', { email, role: 'member' });
    const token = /\/invitation\?token=([\w-]{43})/.exec(shown.text)?.[1] ?? '';
    expect(shown.text).toContain(`${gateway.url}/invitation?token=${token}`);
    const again = await admin.get('/portal/invitations');
    expect(again.text).toContain(email);
    expect(again.text).not.toContain(token);
    expect(
      JSON.stringify(await gateway.db.sql`select encode(token_hash, 'escape') as hash, i.* from invitations i`),
    ).not.toContain(token);
  });
});

it('sends an invitation by email with a mail server, and hides the link from the inviter', async () => {
  const mail: MailServer = await startMailServer();
  const sending = await startGateway({ env: { HEADGATE_SMTP_URL: mail.url, HEADGATE_PUBLIC_URL: publicUrl } });
  try {
    const email = anybody();
    const visitor = await signInVisitor(sending);
    const shown = await visitor.post('/portal/invitations', { email, role: 'admin' });
    expect(shown.text).toContain(`was sent to ${email}`);
    expect(shown.text).not.toContain('token=');
    const letter = await mail.next(email);
    expect(letter.to).toEqual([email]);
    // As the pages call it.
    expect(letter.text).toMatch(/with the role\s+"Administrator"/);
    const link = linkIn(letter, publicUrl);
    expect((await send(`${sending.url}${link}`, { headers: { accept: 'text/html' } })).status).toBe(200);
  } finally {
    await sending.stop();
    await mail.stop();
  }
});

describe('a user in two organizations', () => {
  async function member(): Promise<{ visitor: Visitor; ids: readonly string[] }> {
    const { id, key } = await openOrganization('Water Works');
    const person = await makePerson(gateway, { role: 'admin' });
    const { token } = await invite(person.email, { role: 'member' }, key);
    const joined = await (await signInPerson(gateway, person.email)).post('/invitation', { token, as: 'member' });
    const me = (await (await gateway.request('/v1/keys')).json()) as { data: { project_id: string }[] };
    expect(me.data.length).toBeGreaterThan(0);
    const [home] = await gateway.db.sql`select id from organizations where platform`;
    return {
      visitor: await visitorWith(gateway, cookieOf(joined)),
      ids: [id, `org_${String(home?.['id']).replaceAll('-', '')}`],
    };
  }

  it('works in one at a time, switches by a form with a new token, and has the role of each', async () => {
    const { visitor, ids } = await member();
    const [, home = ''] = ids;
    expect((await visitor.get('/portal/invitations')).status).toBe(403);
    expect((await visitor.get(`/portal/switch?organization_id=${home}`)).status).toBe(404);
    expect((await visitor.post('/portal/switch', { organization_id: home, form_token: 'x' })).status).toBe(403);
    const changed = await visitor.post('/portal/switch', { organization_id: home });
    expect([changed.status, changed.headers.location]).toEqual([303, '/']);
    const there = await visitorWith(gateway, cookieOf(changed));
    expect(there.cookie).not.toBe(visitor.cookie);
    expect((await there.get('/portal/invitations')).status).toBe(200);
    expect((await visitor.get('/portal/models')).status).toBe(303);
  });

  it('cannot switch to a suspended organization or one without a membership', async () => {
    const { visitor } = await member();
    const other = await openOrganization('Not mine');
    for (const organization_id of [other.id, '', 'x', `org_${'0'.repeat(32)}`]) {
      expect((await visitor.post('/portal/switch', { organization_id })).status).toBe(404);
    }
    expect((await visitor.get('/portal/models')).status).toBe(200);
  });

  it('sees nothing of one organization in the other', async () => {
    const { visitor, ids } = await member();
    const [water = '', home = ''] = ids;
    const key = await gateway.request('/v1/keys', { body: { name: `only at home ${uuidv7()}`, expiry: 'never' } });
    expect([201, 409]).toContain(key.status);
    const pages = ['/', '/portal/models', '/portal/account', '/portal/wallet'];
    for (const path of pages) expect((await visitor.get(path)).text, path).not.toContain('only at home');
    const back = await visitorWith(gateway, cookieOf(await visitor.post('/portal/switch', { organization_id: home })));
    const invited = anybody();
    await back.post('/portal/invitations', { email: invited, role: 'member' });
    const again = await visitorWith(gateway, cookieOf(await back.post('/portal/switch', { organization_id: water })));
    await gateway.db.sql`update memberships set role = 'admin' where organization_id = ${`${water.slice(4)}`}`;
    expect((await again.get('/portal/invitations')).text).not.toContain(invited);
    expect((await again.get(`/portal/invitations?organization_id=${home}`)).text).not.toContain(invited);
  });

  it('learns that an organization is suspended, and signs in to the other', async () => {
    const { visitor, ids } = await member();
    const [water = ''] = ids;
    await gateway.request(`/v1/organizations/${water}`, { method: 'PATCH', body: { status: 'suspended' } });
    const shown = await visitor.get('/');
    expect(shown.status).toBe(403);
    expect(shown.text).toContain('This organization is suspended');
    expect(shown.text).toContain('name="password"');
  });
});
