import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** What a page says of the change that led to it. */

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway();
  admin = await signInVisitor(gateway);
});

afterAll(() => gateway.stop());

const isSaid = /class="notice good"/;

it('shows no notice for a hand-written link, for any word', async () => {
  const paths = [
    'keys',
    'wallet',
    'account',
    'sessions',
    'organization',
    'projects',
    'users',
    'invitations',
    'engines',
  ];
  for (const path of [...paths, 'stacks', 'clusters', 'costs', 'costs/rates']) {
    for (const word of [
      'saved',
      'deleted',
      'credited',
      'made',
      'ended',
      'reloaded',
      'revoked',
      'password',
      'currency',
    ]) {
      const { status, text } = await admin.get(`/portal/${path}?notice=${word}`);
      expect([path, word, status, isSaid.test(text)]).toEqual([path, word, 200, false]);
    }
  }
});

it('shows a notice once, to the session of the form, for that form only', async () => {
  const credit = (reference: string) => admin.post('/portal/wallet/credits', { amount: '1', reference, note: '' });
  const { location, 'set-cookie': cookies } = (await credit('notice-1')).headers;
  const [proof = ''] = (cookies?.[0] ?? '').split(';');
  // Another session of the same person, with the cookie planted.
  const other = await signInVisitor(gateway);
  const planted = await other.get(String(location), { cookie: `${other.cookie}; ${proof}` });
  expect([planted.status, isSaid.test(planted.text)]).toEqual([200, false]);
  expect((await admin.get('/portal/wallet?notice=adjusted')).text).not.toMatch(isSaid);
  expect((await admin.get(String(location))).text).toContain('Credit added.');
  expect((await admin.get(String(location))).text).not.toMatch(isSaid);
});
