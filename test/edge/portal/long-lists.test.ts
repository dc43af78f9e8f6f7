import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '../../support/gateway.ts';
import { signInVisitor, type Visitor } from './visitor.ts';

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

/** Whether a list of a page offers one, by its id. */
const offers = (text: string, { id }: { id: string }): boolean => text.includes(`<option value="${id}"`);

describe('of more than a hundred', () => {
  it('projects each is offered, for a new key and for usage', async () => {
    let last = { id: '' };
    for (let made = 0; made < 101; made += 1) last = await make('/v1/projects', { name: `project ${made}` });
    for (const path of ['/portal/keys/new', '/portal/usage']) {
      expect([path, offers((await admin.get(path)).text, last)]).toEqual([path, true]);
    }
  });

  it('organizations each is offered, for a new cluster and for costs', async () => {
    const first = await make('/v1/organizations', { name: 'The first of many' });
    for (let made = 0; made < 101; made += 1) await make('/v1/organizations', { name: `organization ${made}` });
    const { text } = await admin.get('/portal/clusters/new');
    expect(text).toMatch(new RegExp(`<option\\s+value="${first.id}"`));
    expect((await admin.get('/portal/costs')).text).toContain('The first of many');
  });

  it('members each is offered, for a link to a new password', async () => {
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

describe('of more than fifty', () => {
  it('conversion rates the page goes on, beside rate cards that go on by themselves', async () => {
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
