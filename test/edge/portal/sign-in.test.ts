import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
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
} from '#test/portal/visitor.ts';

let gateway: TestGateway;
let person: Person;
let hosts = 0;

beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_TRUSTED_PROXIES: '127.0.0.1' } });
  person = await makePerson(gateway);
});

afterAll(() => gateway.stop());

/** Each from an address of its own: what others have guessed from there is not what is tested. */
function signIn(email: string, password: string, headers: SentOptions['headers'] = {}): Promise<Shown> {
  hosts += 1;
  const from = `10.1.${Math.floor(hosts / 250)}.${(hosts % 250) + 1}`;
  return sendForm(gateway.url, '/sign-in', { email, password }, { 'x-forwarded-for': from, ...headers });
}

const session = (): Promise<readonly object[]> => gateway.db.sql`select id from sessions`;

describe('an invalid sign-in by password', () => {
  it.each([
    ['without the address of its page', { origin: null }],
    ['from another site', { origin: 'https://evil.example' }],
    ['from a neighbour on the same site', { 'sec-fetch-site': 'same-site' }],
    ['over plain HTTP from elsewhere', { host: 'gateway.example', origin: 'http://gateway.example' }],
  ])('returns 403: %s', async (_, headers) => {
    const before = (await session()).length;
    const shown = await signIn(person.email, passwordOf, headers);
    expect([shown.status, shown.headers['set-cookie']]).toEqual([403, undefined]);
    expect(await session()).toHaveLength(before);
  });

  it('returns the same response for every reason', async () => {
    const { sql } = gateway.db;
    const opened = await gateway.request('/v1/organizations', { body: { name: 'Suspended' } });
    const suspended = (await opened.json()) as { id: string; management_key: string };
    const theirs = await makePerson(gateway, {}, suspended.management_key);
    expect(
      (await gateway.request(`/v1/organizations/${suspended.id}`, { method: 'PATCH', body: { status: 'suspended' } }))
        .status,
    ).toBe(200);
    const without = await makePerson(gateway);
    await sql`update users set password_hash = null where id = ${parseId('user', without.id) ?? ''}`;
    const answers = [
      await signIn(person.email, 'a wrong password'),
      await signIn(`${uuidv7()}@example.com`, passwordOf),
      await signIn(theirs.email, passwordOf),
      await signIn(without.email, passwordOf),
      await signIn('not an address', passwordOf),
      await signIn(person.email.replace('@', '\0@'), passwordOf),
      await signIn(person.email, ''),
      await signIn(person.email, 'x'.repeat(2000)),
    ];
    const told = answers.map(({ status, text, headers }) => [
      status,
      headers['set-cookie'],
      text.replace(/value="[^"]*@[^"]*"|value="not an address"/, 'value=""'),
    ]);
    expect(told[0]?.slice(0, 2)).toEqual([403, undefined]);
    for (const one of told.slice(1)) expect(one).toEqual(told[0]);
    expect(gateway.logLines.join('')).not.toContain('a wrong password');
  });

  it('shows the address as text, not as HTML', async () => {
    const { text } = await signIn('"><script>alert(1)</script>', 'x');
    expect(text).not.toContain('<script>alert');
  });
});

describe('password guesses', () => {
  const from = (address: string) => ({ 'x-forwarded-for': address });

  async function guess(email: string, headers: (index: number) => SentOptions['headers'], count: number) {
    const seen: number[] = [];
    for (let index = 0; index < count; index += 1)
      seen.push((await signIn(email, `no ${index}`, headers(index))).status);
    return seen;
  }

  it('for one account return 429 after ten, from any address, also for unknown accounts', async () => {
    for (const email of [(await makePerson(gateway)).email, `${uuidv7()}@example.com`]) {
      const seen = await guess(email, (index) => from(`10.2.0.${index + 1}`), 11);
      expect(seen).toEqual([...Array.from({ length: 10 }, () => 403), 429]);
      const refused = await signIn(email, passwordOf);
      expect([refused.status, refused.headers['set-cookie']]).toEqual([429, undefined]);
      expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
      expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(900);
    }
  });

  it('by others do not lock out the address where the account was used recently', async () => {
    const { email } = await makePerson(gateway);
    expect((await signIn(email, passwordOf, from('10.3.1.1'))).status).toBe(303);
    await guess(email, (index) => from(`10.3.0.${index + 1}`), 11);
    expect((await signIn(email, passwordOf, from('10.3.0.99'))).status).toBe(429);
    expect((await signIn(email, passwordOf, from('10.3.1.1'))).status).toBe(303);
  });

  it('from one address return 429 after thirty, for any account; other addresses continue', async () => {
    const seen: number[] = [];
    for (let index = 0; index < 31; index += 1) {
      seen.push((await signIn(`${index}-${uuidv7()}@example.com`, 'x', from('10.4.0.1'))).status);
    }
    expect(seen).toEqual([...Array.from({ length: 30 }, () => 403), 429]);
    expect((await signIn(person.email, passwordOf, from('10.4.0.1'))).status).toBe(429);
    expect((await signIn(person.email, passwordOf, from('10.4.0.2'))).status).toBe(303);
  });

  it('that are correct are not counted', async () => {
    const { email } = await makePerson(gateway);
    for (let index = 0; index < 12; index += 1) expect((await signIn(email, passwordOf)).status).toBe(303);
  });
});

describe('a sign-in by password', () => {
  it('accepts the address in any spelling, and leads to the overview', async () => {
    const shown = await signIn(` ${person.email.toUpperCase()} `, passwordOf);
    expect([shown.status, shown.headers.location]).toEqual([303, '/']);
    const overview = await send(`${gateway.url}/`, { headers: { accept: 'text/html', cookie: cookieOf(shown) } });
    expect(overview.text).toContain(person.email);
  });

  it("sets a new token, and ends the browser's former session", async () => {
    const before = await signInPerson(gateway, person.email);
    const shown = await signIn(person.email, passwordOf, { cookie: before.cookie });
    expect(cookieOf(shown)).not.toBe(before.cookie);
    expect((await before.get('/portal/models')).status).toBe(303);
  });

  it('leads to the requested page, on this portal only', async () => {
    const asked = await send(`${gateway.url}/portal/usage?by=key&range=7d`, { headers: { accept: 'text/html' } });
    expect(asked.headers.location).toBe('/?next=%2Fportal%2Fusage%3Fby%3Dkey%26range%3D7d');
    const form = await send(`${gateway.url}${String(asked.headers.location)}`, { headers: { accept: 'text/html' } });
    expect(form.text).toContain('name="next" value="/portal/usage?by=key&amp;range=7d"');
    const wanted: readonly [string, string][] = [
      ['/portal/usage?by=key', '/portal/usage?by=key'],
      ['/', '/'],
      ['', '/'],
      ['//evil.example', '/'],
      ['/\\evil.example', '/'],
      ['\\\\evil.example', '/'],
      ['https://evil.example', '/'],
      ['https:evil.example', '/'],
      ['javascript:alert(1)', '/'],
      ['/portal//evil.example', '/'],
      ['/portal/@evil.example', '/'],
      ['/portal/\r\nset-cookie: a=b', '/'],
      ['/portal/\t//evil.example', '/'],
      ['/portal#@evil.example', '/'],
      ['/docs', '/'],
      ['.evil.example', '/'],
      ['@evil.example', '/'],
      [' /portal/keys', '/'],
      [`/portal/${'x'.repeat(3000)}`, '/'],
    ];
    for (const [next, location] of wanted) {
      const shown = await sendForm(gateway.url, '/sign-in', { email: person.email, password: passwordOf, next });
      expect([next, shown.status, shown.headers.location]).toEqual([next, 303, location]);
    }
  });

  it('enters the organization of the last session', async () => {
    const opened = await gateway.request('/v1/organizations', { body: { name: 'Second' } });
    const { id } = (await opened.json()) as { id: string };
    const { id: userId, email } = await makePerson(gateway);
    const [user, organization] = [parseId('user', userId) ?? '', parseId('org', id) ?? ''];
    const { sql } = gateway.db;
    await sql`insert into memberships values (${organization}, ${user}, 'member', now() + interval '1 minute')`;
    const isIn = /<summary>\s*Second\s*</;
    expect((await (await signInPerson(gateway, email)).get('/')).text).not.toMatch(isIn);
    await sql`update sessions set organization_id = ${organization} where user_id = ${user}`;
    expect((await (await signInPerson(gateway, email)).get('/')).text).toMatch(isIn);
    expect(formatId('org', organization)).toBe(id);
  });

  it("has an audit entry with the client's address", async () => {
    await signIn(person.email, passwordOf, { 'x-forwarded-for': '10.9.9.9' });
    const [row] = await gateway.db.sql`select action, after from audit_log order by id desc limit 1`;
    expect(row).toMatchObject({ action: 'session.opened', after: { address: '10.9.9.9' } });
  });
});
