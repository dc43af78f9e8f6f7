import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  gateway = await startGateway();
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

const goto = (path: string) => person.page.goto(new URL(path, gateway.url).href);

interface KeyBody {
  readonly id: string;
  readonly name: string;
  readonly expires_at: number | null;
  readonly created_at: number;
  readonly requests_per_minute: number | null;
  readonly tokens_per_minute: number | null;
  readonly store_requests: boolean;
  readonly status: string;
}

async function keyNamed(name: string): Promise<KeyBody | undefined> {
  const { data } = (await (await gateway.request('/v1/keys')).json()) as { data: KeyBody[] };
  return data.find((key) => key.name === name);
}

async function makeKey(name: string, expiry = 'Never'): Promise<string> {
  const { page } = person;
  await goto('/portal/keys/new');
  await page.getByLabel('Name').fill(name);
  await page.getByLabel(expiry, { exact: true }).check();
  await page.getByRole('button', { name: 'Create key' }).click();
  return (await page.locator('#secret').textContent()) ?? '';
}

async function deleteKey(name: string): Promise<void> {
  const { page } = person;
  await goto('/portal/keys');
  await page.getByRole('link', { name: `Revoke ${name}`, exact: true }).click();
  await page.getByRole('button', { name: `Revoke ${name}`, exact: true }).click();
  await page.getByRole('status').getByText('Key revoked').waitFor();
}

const models = (secret: string) => gateway.request('/v1/models', { key: secret });

describe('the key pages', () => {
  it.each([
    ['Never', null],
    ['7 days', 7],
    ['30 days', 30],
    ['90 days', 90],
    ['1 year', 365],
  ])('create a key with the expiry %s', async (expiry, days) => {
    const name = `lasts ${expiry}`;
    const secret = await makeKey(name, expiry);
    expect((await models(secret)).status).toBe(200);
    const key = await keyNamed(name);
    const life = key === undefined || key.expires_at === null ? null : (key.expires_at - key.created_at) / 86_400;
    expect(life === null ? null : Math.round(life * 100) / 100).toBe(days);
    await deleteKey(name);
    expect((await models(secret)).status).toBe(401);
  });

  it('show the secret once: not after a reload, another page or the back button', async () => {
    const { page } = person;
    const secret = await makeKey('once');
    expect(secret).toMatch(/^sk-hg-/);
    await page.reload();
    await page.getByRole('heading', { name: 'Keys', exact: true }).waitFor();
    expect(await page.content()).not.toContain(secret);
    expect(await keyNamed('once')).toBeDefined();
    await page.getByRole('link', { name: 'once', exact: true }).click();
    expect(await page.content()).not.toContain(secret);
    const all = (await (await gateway.request('/v1/keys')).json()) as { data: KeyBody[] };
    expect(all.data.filter(({ name }) => name === 'once')).toHaveLength(1);
    await deleteKey('once');
  });

  it('change limits and toggles, and show errors at the fields', async () => {
    const { page } = person;
    await makeKey('limited');
    await goto('/portal/keys');
    await page.getByRole('link', { name: 'limited', exact: true }).click();
    await page.getByLabel('Requests per minute').fill('0');
    await page.getByLabel('Tokens per minute').fill('many');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.locator('#requests_per_minute-problem').getByText('must be 1 or more').waitFor();
    await page.locator('#tokens_per_minute-problem').waitFor();
    expect(await page.getByLabel('Tokens per minute').inputValue()).toBe('many');
    expect(await keyNamed('limited')).toMatchObject({ requests_per_minute: 60, tokens_per_minute: null });

    await page.getByLabel('Requests per minute').fill('7');
    await page.getByLabel('Tokens per minute').fill('12,000');
    await page.getByLabel('Store requests and responses').check();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Key saved').waitFor();
    await page.getByText('7 of 7 requests / min').waitFor();
    const changed = { requests_per_minute: 7, tokens_per_minute: 12_000, store_requests: true };
    expect(await keyNamed('limited')).toMatchObject(changed);
    await deleteKey('limited');
  });

  it('name the key and the requests of the last hour before a revocation, which ends the key', async () => {
    const { page } = person;
    const secret = await makeKey('busy');
    for (let sent = 0; sent < 2; sent += 1) {
      const body = { model: 'standin-chat', messages: [{ role: 'user', content: 'Hi' }] };
      await (await gateway.request('/v1/chat/completions', { key: secret, body })).text();
    }
    await goto('/portal/keys');
    await page.getByText('58 of 60 requests / min').waitFor();
    const lastUse = page.locator('tr', { hasText: 'busy' }).locator('td[data-title="Last used"] time');
    await expect
      .poll(async () => {
        await page.reload();
        return lastUse.count();
      })
      .toBe(1);
    await page.getByRole('link', { name: 'Revoke busy' }).click();
    await page.getByText('This key sent 2 requests in the last hour').waitFor();
    await page.getByRole('link', { name: 'Cancel' }).click();
    expect((await models(secret)).status).toBe(200);
    await deleteKey('busy');
    expect((await models(secret)).status).toBe(401);
  });

  it("say before a revocation that the key's first request is running, not that the key is unused", async () => {
    const { page } = person;
    const secret = await makeKey('streams');
    const messages = [{ role: 'user', content: 'Hi' }];
    const standin = { tpot_ms: 200, output_tokens: 500 };
    const body = { model: 'standin-chat', stream: true, messages, standin };
    const answer = await gateway.request('/v1/chat/completions', { key: secret, body });
    await expect
      .poll(async () => {
        await goto('/portal/keys');
        await page.getByRole('link', { name: 'Revoke streams' }).click();
        return (await page.locator('main').innerText()).includes('This key was used in the last hour');
      })
      .toBe(true);
    expect(await page.locator('main').innerText()).not.toContain('not used in the last hour');
    await page.getByRole('button', { name: 'Revoke streams' }).click();
    expect(await answer.text()).toContain('This API key was revoked.');
    expect(await keyNamed('busy')).toMatchObject({ status: 'revoked' });
  });

  it('warn at the key limit, reject the sixth key, and allow it after a revocation', async () => {
    const { page } = person;
    const first = (await (await gateway.request('/v1/keys?status=active')).json()) as { data: unknown[] };
    for (let made = first.data.length; made < 5; made += 1) await makeKey(`number ${made + 1}`);
    await goto('/portal/keys');
    await page.getByText('All 5 active keys of this organization are in use').waitFor();
    expect(await page.getByRole('link', { name: 'New key' }).count()).toBe(0);
    await goto('/portal/keys/new');
    await page.getByText('All 5 active keys of this organization are in use').waitFor();
    expect(await page.getByLabel('Name').count()).toBe(0);
    await deleteKey('number 5');
    await goto('/portal/keys/new');
    await page.getByLabel('Name').fill('the sixth');
    // Somebody else makes one while the form is open.
    expect((await gateway.request('/v1/keys', { body: { name: 'meanwhile' } })).status).toBe(201);
    await page.getByRole('button', { name: 'Create key' }).click();
    await page.getByRole('alert').getByText('Revoke one').waitFor();
    expect(await page.getByLabel('Name').inputValue()).toBe('the sixth');
    expect(await keyNamed('the sixth')).toBeUndefined();
    await deleteKey('meanwhile');
    await makeKey('the sixth');
    expect(await keyNamed('the sixth')).toMatchObject({ status: 'active' });
    expect(person.complaints).toEqual([]);
  });
});
