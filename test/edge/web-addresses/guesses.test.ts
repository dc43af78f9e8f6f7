import { randomBytes } from 'node:crypto';
import { expect, it } from 'vitest';
import { useWebGateway } from '#test/web/web-gateway.ts';

/** Guesses of keys, cookies and links are soon rejected, and nobody else notices. */

const operatorsKey = 'an-operators-own-key-abcdefghijklm';
const web = useWebGateway({
  HEADGATE_BOOTSTRAP_KEY: operatorsKey,
  HEADGATE_TRUSTED_PROXIES: '127.0.0.1',
  HEADGATE_WRONG_KEYS_PER_MINUTE: '3',
});

const guess = (): string => randomBytes(24).toString('hex');

it("returns 429 to an address after too many guesses of an operator's key, also for the right key", async () => {
  const { host } = await web.exposed(await web.application());
  const from = (address: string, words: readonly string[]) =>
    web.get(host, '/', { 'x-forwarded-for': address, 'x-words': words.join(' ') });
  const known = ['a-cookie-that-every-visitor-sends-with-all-he-asks'];
  expect((await from('203.0.113.1', known)).status).toBe(200);
  let requests = 0;
  for (; (await from('203.0.113.1', Array.from({ length: 200 }, guess))).status === 200; requests += 1);
  expect(requests).toBeGreaterThan(1);
  expect(requests).toBeLessThan(12);
  expect(await from('203.0.113.1', [operatorsKey])).toMatchObject({ status: 429, headers: { 'retry-after': '60' } });
  expect((await from('203.0.113.1', known)).status).toBe(200);
  expect((await from('203.0.113.2', [guess()])).status).toBe(200);
  expect((await from('203.0.113.2', [operatorsKey])).status).toBe(400);
});

it('returns 429 to an address after too many wrong cookies and links, and serves valid cookies throughout', async () => {
  const address = await web.exposed(await web.application(), { access: 'members' });
  const { host } = address;
  const good = await web.enter(address, web.organization.key);
  const from = (visitor: string, cookie: string) => web.get(host, '/', { 'x-forwarded-for': visitor, cookie });
  const wrong = (): string => `__Host-headgate_access=${randomBytes(32).toString('base64url')}`;
  const statuses: number[] = [];
  for (let time = 0; time < 4; time += 1) statuses.push((await from('203.0.113.7', wrong())).status);
  expect(statuses).toEqual([401, 401, 401, 429]);
  const link = `/.well-known/headgate/enter?link=${randomBytes(32).toString('base64url')}`;
  const used = await web.get(host, link, { 'x-forwarded-for': '203.0.113.7' }, 'POST');
  expect([used.status, Number(used.headers['retry-after'])]).toEqual([429, expect.any(Number)]);
  expect((await from('203.0.113.7', good)).status).toBe(200);
  expect((await from('203.0.113.7', 'a=b')).status).toBe(401);
  expect((await from('203.0.113.8', wrong())).status).toBe(401);
});
