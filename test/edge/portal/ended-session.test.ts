import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { makePerson, send, signInPerson, signInVisitor, type Visitor, visitorWith } from '#test/portal/visitor.ts';

/** The pages of a browser whose session is over. */

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway();
  admin = await signInVisitor(gateway);
});

afterAll(() => gateway.stop());

const ended = 'You were signed out';
const lapsed = 'Your session expired';
const page = { accept: 'text/html' };

it('shows nothing about sessions to a visitor with no token or an unknown one', async () => {
  const name = admin.cookie.split('=')[0] ?? '';
  for (const cookie of ['', `${name}=`, `${name}=x`, `${name}=${'A'.repeat(43)}`]) {
    const { status, text } = await send(`${gateway.url}/`, { headers: { ...page, cookie } });
    expect([cookie, status, text.includes(ended) || text.includes(lapsed)]).toEqual([cookie, 200, false]);
  }
});

it('shows once that a session was ended elsewhere, on the next page', async () => {
  const here = await signInVisitor(gateway);
  await admin.post('/portal/sessions/end', { which: 'others' });
  const moved = await here.get('/portal/keys');
  expect([moved.status, moved.headers.location]).toEqual([303, '/?next=%2Fportal%2Fkeys']);
  const shown = await here.get(String(moved.headers.location));
  expect([shown.status, shown.text.includes(ended)]).toEqual([200, true]);
  expect(shown.text).toContain('name="next" value="/portal/keys"');
  // With this the browser has no token any more.
  expect(String(shown.headers['set-cookie'])).toMatch(/=; .*Max-Age=0|Max-Age=0.*/);
  const sent = await here.post('/portal/wallet/credits', { amount: '1', reference: 'ended', note: '' });
  expect([sent.status, sent.headers.location]).toEqual([303, '/']);
});

it('shows the reason after a password change or a removed membership', async () => {
  const person = await makePerson(gateway);
  const one = await signInPerson(gateway, person.email);
  const link = await gateway.request(`/v1/users/${person.id}`, { method: 'DELETE' });
  expect(link.status).toBeLessThan(300);
  expect((await one.get('/')).text).toContain(ended);
});

it('shows that a session expired, not that a user ended it', async () => {
  const here = await signInVisitor(gateway);
  await gateway.db
    .sql`update sessions set last_seen_at = now() - interval '13 hours' where id = (select max(id::text)::uuid from sessions)`;
  const again = await visitorWith(gateway, here.cookie);
  const { text } = await again.get('/');
  expect([text.includes(lapsed), text.includes(ended)]).toEqual([true, false]);
});
