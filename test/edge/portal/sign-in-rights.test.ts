import { sql as raw } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { parseId, uuidv7 } from '#base/id.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import {
  cookieOf,
  passwordOf,
  type Person,
  sendForm,
  type Shown,
  signInPerson,
  type Visitor,
  visitorWith,
} from '#test/portal/visitor.ts';

/** Rights that a user was given end with the giver's right to give them. */

const another = 'another good password';

let gateway: TestGateway;

beforeAll(async () => {
  gateway = await startGateway();
});

afterAll(() => gateway.stop());

interface Place {
  readonly id: string;
  readonly key: string;
}

async function openOrganization(): Promise<Place> {
  const opened = await gateway.request('/v1/organizations', { body: { name: `Works ${uuidv7()}` } });
  const { id, management_key: key } = (await opened.json()) as { id: string; management_key: string };
  return { id, key };
}

/** Only who administers the platform makes owners by the API. */
async function make({ id }: Place, role: string): Promise<Person> {
  const email = `${uuidv7()}@example.com`;
  const body = { name: 'Ada', email, password: passwordOf, role };
  const made = await gateway.request(`/v1/users?organization_id=${id}`, { body });
  expect(made.status).toBe(201);
  return { id: ((await made.json()) as { id: string }).id, email };
}

const tokenIn = ({ text }: Shown): string => /\?token=([\w-]{43})/.exec(text)?.[1] ?? '';

async function linkBy(maker: Visitor, person: Person): Promise<string> {
  const token = tokenIn(await maker.post('/portal/reset-links', { user_id: person.id }));
  expect(token).not.toBe('');
  return token;
}

async function inviteBy(maker: Visitor, email: string, role: string): Promise<string> {
  const token = tokenIn(await maker.post('/portal/invitations', { email, role }));
  expect(token).not.toBe('');
  return token;
}

const use = (token: string): Promise<Shown> => sendForm(gateway.url, '/reset-password', { token, password: another });

const accept = (token: string): Promise<Shown> =>
  sendForm(gateway.url, '/invitation', { token, as: 'new', name: 'Alt', password: passwordOf });

const giveRole = async ({ id }: Place, person: Person, role: string): Promise<void> => {
  const path = `/v1/users/${person.id}?organization_id=${id}`;
  expect((await gateway.request(path, { method: 'PUT', body: { role } })).status).toBe(200);
};

async function join(person: Person, { key }: Place, by?: Visitor): Promise<Visitor> {
  const body = { email: person.email, role: 'admin' };
  const made = (await (await gateway.request('/v1/invitations', { body, key })).json()) as { link: string };
  const token = new URL(made.link, gateway.url).searchParams.get('token') ?? '';
  const visitor = by ?? (await signInPerson(gateway, person.email));
  return visitorWith(gateway, cookieOf(await visitor.post('/invitation', { token, as: 'member' })));
}

describe('a reset link of an administrator', () => {
  it('is rejected after its user has joined another organization', async () => {
    const [acme, beta] = [await openOrganization(), await openOrganization()];
    const [admin, person] = [await make(acme, 'admin'), await make(acme, 'member')];
    const token = await linkBy(await signInPerson(gateway, admin.email), person);
    await join(person, beta);
    expect((await use(token)).status).toBe(404);
    await signInPerson(gateway, person.email);
  });

  it("is rejected after its user's role has changed", async () => {
    const acme = await openOrganization();
    const [admin, person] = [await make(acme, 'admin'), await make(acme, 'member')];
    const token = await linkBy(await signInPerson(gateway, admin.email), person);
    await giveRole(acme, person, 'owner');
    expect((await use(token)).status).toBe(404);
  });

  it('is rejected after its maker has lost the role or was deleted', async () => {
    const acme = await openOrganization();
    const [admin, other, person] = [await make(acme, 'admin'), await make(acme, 'admin'), await make(acme, 'member')];
    const tokens = [
      await linkBy(await signInPerson(gateway, admin.email), person),
      await linkBy(await signInPerson(gateway, other.email), person),
    ];
    await giveRole(acme, admin, 'member');
    const gone = await gateway.request(`/v1/users/${other.id}?organization_id=${acme.id}`, { method: 'DELETE' });
    expect(gone.status).toBe(204);
    for (const token of tokens) expect((await use(token)).status).toBe(404);
    await signInPerson(gateway, person.email);
  });

  it("is checked again when used, even if its maker's rights changed at the same moment", async () => {
    const acme = await openOrganization();
    const [admin, person] = [await make(acme, 'admin'), await make(acme, 'member')];
    const token = await linkBy(await signInPerson(gateway, admin.email), person);
    const userId = parseId('user', person.id) ?? '';
    await gateway.db.sql`update memberships set role = 'owner' where user_id = ${userId}`;
    expect((await use(token)).status).toBe(404);
    await gateway.db.sql`update memberships set role = 'member' where user_id = ${userId}`;
    expect((await use(token)).status).toBe(303);
  });
});

describe('an invitation to a role', () => {
  it('is rejected when its inviter may no longer give the role; a lower one stays valid', async () => {
    const acme = await openOrganization();
    const owner = await make(acme, 'owner');
    const visitor = await signInPerson(gateway, owner.email);
    const invite = (role: string) => inviteBy(visitor, `${uuidv7()}@example.com`, role);
    const [asOwner, asAdmin] = [await invite('owner'), await invite('admin')];
    await giveRole(acme, owner, 'admin');
    expect((await accept(asOwner)).status).toBe(404);
    expect((await accept(asAdmin)).status).toBe(303);
    const asMember = await invite('member');
    await giveRole(acme, owner, 'member');
    expect((await accept(asMember)).status).toBe(404);
    await giveRole(acme, owner, 'owner');
    for (const token of [asOwner, asMember]) expect((await accept(token)).status).toBe(404);
  });

  it('is checked again when accepted, even if it was made at the same moment', async () => {
    const acme = await openOrganization();
    const owner = await make(acme, 'owner');
    const token = await inviteBy(await signInPerson(gateway, owner.email), `${uuidv7()}@example.com`, 'owner');
    const userId = parseId('user', owner.id) ?? '';
    await gateway.db.sql`update memberships set role = 'admin' where user_id = ${userId}`;
    expect((await accept(token)).status).toBe(404);
    await gateway.db.sql`update memberships set role = 'owner' where user_id = ${userId}`;
    expect((await accept(token)).status).toBe(303);
  });
});

describe('switching the organization', () => {
  const rowsOf = ({ id }: Person) =>
    gateway.db.sql`select id, created_at, expires_at, ended_at from sessions
      where user_id = ${parseId('user', id) ?? ''} order by id`;

  it('to the current one leaves the session unchanged', async () => {
    const acme = await openOrganization();
    const person = await make(acme, 'member');
    const visitor = await signInPerson(gateway, person.email);
    const before = await rowsOf(person);
    const shown = await visitor.post('/portal/switch', { organization_id: acme.id });
    expect([shown.status, shown.headers['set-cookie']]).toEqual([303, undefined]);
    expect(await rowsOf(person)).toEqual(before);
    expect((await visitor.get('/portal/models')).status).toBe(200);
  });

  it('and joining one do not extend a session', async () => {
    const [acme, beta] = [await openOrganization(), await openOrganization()];
    const person = await make(acme, 'member');
    const visitor = await signInPerson(gateway, person.email);
    await gateway.db.sql`update sessions set expires_at = expires_at - interval '6 days',
      created_at = created_at - interval '6 days' where user_id = ${parseId('user', person.id) ?? ''}`;
    const [first] = await rowsOf(person);
    const there = await join(person, beta, visitor);
    const back = await there.post('/portal/switch', { organization_id: acme.id });
    expect([back.status, cookieOf(back)]).toEqual([303, expect.stringContaining('=')]);
    const rows = await rowsOf(person);
    expect(rows).toHaveLength(3);
    for (const row of rows) {
      expect(row).toMatchObject({ created_at: first?.['created_at'], expires_at: first?.['expires_at'] });
    }
  });

  it('waits for a concurrent removal of the membership, and is then rejected', async () => {
    const [acme, beta] = [await openOrganization(), await openOrganization()];
    const person = await make(acme, 'member');
    await join(person, beta);
    const visitor = await signInPerson(gateway, person.email);
    const [user, organization] = [parseId('user', person.id) ?? '', parseId('org', acme.id) ?? ''];
    const pending = await gateway.db.orm.transaction(async (tx) => {
      await tx.execute(raw`select id from users where id = ${user} for update`);
      await tx.execute(raw`delete from memberships where user_id = ${user} and organization_id = ${organization}`);
      const asked = visitor.post('/portal/switch', { organization_id: acme.id });
      await vi.waitFor(
        async () => {
          const waiting = await gateway.db.sql`select pid from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'`;
          expect(waiting.length).toBeGreaterThan(0);
        },
        { timeout: 300_000 },
      );
      return { asked };
    });
    expect((await pending.asked).status).toBe(404);
    const opened = await gateway.db.sql`select id from sessions where user_id = ${user}
      and organization_id = ${organization} and ended_at is null`;
    expect(opened).toHaveLength(0);
    expect((await visitor.get('/portal/models')).status).toBe(200);
  });
});
