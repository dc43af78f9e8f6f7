import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** Pages of who has more of something than one page of the API holds. */

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway();
  admin = await signInVisitor(gateway);
});
afterAll(() => gateway.stop());

async function make(path: string, body: object): Promise<{ id: string }> {
  const answer = await gateway.request(path, { body });
  if (answer.status !== 201) throw new Error(await answer.text());
  return (await answer.json()) as { id: string };
}

/** Checks whether a list of a page offers one, by its id. */
const offers = (text: string, { id }: { id: string }): boolean => text.includes(`<option value="${id}"`);

describe('a list of more than a hundred', () => {
  it('projects is offered completely for a new key and for usage', async () => {
    let last = { id: '' };
    for (let made = 0; made < 101; made += 1) last = await make('/v1/projects', { name: `project ${made}` });
    for (const path of ['/portal/keys/new', '/portal/usage']) {
      expect([path, offers((await admin.get(path)).text, last)]).toEqual([path, true]);
    }
  });

  it('organizations is offered completely for a new cluster and for costs', async () => {
    const first = await make('/v1/organizations', { name: 'The first of many' });
    for (let made = 0; made < 101; made += 1) await make('/v1/organizations', { name: `organization ${made}` });
    const { text } = await admin.get('/portal/clusters/new');
    expect(text).toMatch(new RegExp(`<option\\s+value="${first.id}"`));
    expect((await admin.get('/portal/costs')).text).toContain('The first of many');
  });

  it('members is offered completely for a password reset link', async () => {
    const { sql } = gateway.db;
    // By their names the others come first; a password of each would take a while.
    await sql`
      insert into users (id, email, email_key, name, platform_role, created_at)
      select gen_random_uuid(), 'a' || n, 'a' || n, 'Abel', 'user', now() from generate_series(1, 101) n`;
    await sql`
      insert into memberships (user_id, organization_id, role, created_at)
      select id, (select organization_id from memberships order by created_at limit 1), 'member', now()
      from users where name = 'Abel'`;
    const zoe = { name: 'Zoe', email: 'zoe@example.com', password: 'long enough for everybody' };
    const last = await make('/v1/users', zoe);
    expect(offers((await admin.get('/portal/invitations')).text, last)).toBe(true);
  });
});

describe('a list of more than fifty', () => {
  it('conversion rates has its own pages, beside those of rate cards', async () => {
    const of = (month: number, year: number): string => `${year}-${String(month).padStart(2, '0')}-01`;
    for (let made = 0; made < 51; made += 1) {
      const rate = {
        from: 'USD',
        to: 'EUR',
        rate: '0.9',
        effective_from: of((made % 12) + 1, 2030 + Math.floor(made / 12)),
      };
      await make('/v1/billing/conversion-rates', rate);
    }
    const { text } = await admin.get('/portal/costs/rates');
    expect(text).toContain('/portal/costs/rates?cards=1&amp;conversions=2');
    expect(text).not.toContain('2030-01-01');
    expect((await admin.get('/portal/costs/rates?conversions=2')).text).toContain('2030-01-01');
  });
});

describe('a list of more than five hundred', () => {
  it('keys is counted, offered and named completely, and has pages', async () => {
    const { sql } = gateway.db;
    const [first] = await sql`select id, name from api_keys order by id limit 1`;
    await sql`
      insert into api_keys (id, organization_id, project_id, user_id, name, prefix, last4, secret_hash, scope, created_at)
      select ('ffffffff-ffff-7fff-8fff-' || lpad(to_hex(n), 12, '0'))::uuid, organization_id, project_id, user_id,
        'many ' || n, 'sk-hg-' || n, 'last', sha256(n::text::bytea), scope, now()
      from api_keys, generate_series(1, 600) n where id = ${String(first?.['id'])}`;
    const id = `key_${String(first?.['id']).replaceAll('-', '')}`;
    const keys = await admin.get('/portal/keys');
    expect(Number(/Active \((\d+) of/.exec(keys.text)?.[1])).toBeGreaterThan(600);
    expect(keys.text).toMatch(/href="\/portal\/keys\?status=active&amp;cursor=[^"]+"[^>]*>Older/);
    expect(offers((await admin.get('/portal/usage')).text, { id })).toBe(true);
    await make('/v1/projects', { name: 'by the first key' });
    const audit = await admin.get('/portal/audit?action=project.created');
    expect(audit.text).toContain(`the key <strong>${String(first?.['name'])}</strong>`);
    expect((await admin.get('/')).text).toMatch(/60\d active keys\./);
  });
});

it('lists sessions in pages, with a button to end each session', async () => {
  const { sql } = gateway.db;
  await sql`
    insert into sessions (id, token_hash, user_id, organization_id, created_at, last_seen_at, expires_at, address, user_agent)
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, sha256(n::text::bytea), user_id, organization_id,
      now(), now(), now() + interval '1 day', '192.0.2.' || n, 'curl'
    from (select * from sessions limit 1) one, generate_series(1, 120) n`;
  const { text } = await admin.get('/portal/sessions');
  expect([text.includes('Page 1 of 3'), text.match(/name="which" value="session_/g)?.length]).toEqual([true, 49]);
  const last = await admin.get('/portal/sessions?page=3');
  expect(last.text).toContain('192.0.2.1<');
  for (const page of ['0', '-1', 'x', '1e9', '4']) {
    expect([page, (await admin.get(`/portal/sessions?page=${page}`)).status]).toEqual([page, 200]);
  }
});
