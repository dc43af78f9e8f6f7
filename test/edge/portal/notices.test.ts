import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { cookieOf, signInVisitor, type Visitor } from '#test/portal/visitor.ts';
import { packOf } from '#test/stacks/raw-zip.ts';

/** Notices of a page about the change that led to it. */

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

/** Returns the notice of the page to which a form redirects. */
async function noticeAt(location: unknown, cookie: string): Promise<string | undefined> {
  const { text } = await admin.get(String(location), { cookie });
  return /class="notice good"[^>]*>([^<]*)</.exec(text)?.[1]?.trim();
}

it.each([
  ['cards', { hardware_profile: 'first-8x', currency: 'USD' }, 'gpu_hour'],
  ['conversions', { from: 'USD', to: 'CHF' }, 'rate'],
])('mentions a previous rate only if the new one ended it, form of %s', async (kind, fields, amount) => {
  const add = async (value: string) => {
    const named = Object.entries({ ...fields, [amount]: value }).map(([name, text]) => [`${kind}.${name}`, text]);
    const posted = await admin.post(`/portal/costs/rates/${kind}`, Object.fromEntries(named));
    return noticeAt(posted.headers.location, `${admin.cookie}; ${cookieOf(posted)}`);
  };
  expect(await add('2')).toBe('Rate added.');
  expect(await add('3')).toBe('Rate added. It ended the previous rate.');
});

it('says after each upload of a stack what has changed', async () => {
  const upload = async (text: string) => {
    const form = new FormData();
    form.append('form_token', admin.formToken);
    form.append('name', 'noticed');
    form.append('file', new File([new Uint8Array(packOf({ 'main.tf': text }))], 'noticed.zip'));
    const headers = { cookie: admin.cookie, origin: gateway.url };
    const options = { method: 'POST', headers, body: form, redirect: 'manual' } as const;
    const answer = await fetch(new URL('/portal/stacks', gateway.url), options);
    const [proof = ''] = answer.headers.getSetCookie()[0]?.split(';') ?? [];
    return noticeAt(answer.headers.get('location'), `${admin.cookie}; ${proof}`);
  };
  expect(await upload('')).toBe('Stack added to the catalog.');
  expect(await upload('')).toBe('Nothing changed: the uploaded package is the same as version 1.');
  expect(await upload('# new')).toBe('Version 2 uploaded. Existing runs keep their version.');
});
