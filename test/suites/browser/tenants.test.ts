import { afterAll, beforeAll, expect, it } from 'vitest';
import { makePerson, passwordOf } from '#test/portal/visitor.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type Person, useBrowsers } from './browser.ts';

/** Two organizations on one gateway, and who may not: as their people see it. */

const browsers = useBrowsers();
let gateway: TestGateway;

beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(() => gateway.stop());

interface Tenant {
  readonly id: string;
  readonly key: string;
  readonly person: Person;
  /** Addresses of pages about what is its own. */
  readonly own: string[];
}

async function enter(email: string): Promise<Person> {
  const person = await browsers.open();
  const { page } = person;
  await page.goto(gateway.url);
  await page.getByLabel('Email address').fill(email);
  await page.getByLabel('Password').fill(passwordOf);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  return person;
}

async function openTenant(name: string): Promise<Tenant> {
  const opened = await gateway.request('/v1/organizations', { body: { name } });
  const { id, management_key: key } = (await opened.json()) as { id: string; management_key: string };
  const credit = { organization_id: id, amount: '5', reference: `opening of ${name}` };
  expect((await gateway.request('/v1/wallet/credits', { body: credit })).status).toBe(201);
  const { id: userId, email } = await makePerson(gateway, { role: 'admin' }, key);
  return { id, key, person: await enter(email), own: [`/portal/users/${userId}`] };
}

/** By hand: a project, a key in it, and a request with that key. */
async function work({ person: { page }, own }: Tenant, colour: string): Promise<void> {
  await page.getByRole('link', { name: 'Projects', exact: true }).click();
  await page.getByRole('link', { name: 'New project' }).click();
  await page.getByLabel('Name').fill(`${colour} project`);
  await page.getByRole('button', { name: 'Create project' }).click();
  await page.getByRole('link', { name: `${colour} project` }).click();
  own.push(new URL(page.url()).pathname);
  await page.getByRole('link', { name: 'Keys', exact: true }).click();
  await page.getByRole('link', { name: 'New key' }).click();
  await page.getByLabel('Name').fill(`${colour} key`);
  await page.getByLabel('Project', { exact: true }).selectOption(`${colour} project`);
  await page.getByRole('button', { name: 'Create key' }).click();
  const secret = (await page.locator('#secret').textContent()) ?? '';
  const body = { model: 'standin-chat', messages: [{ role: 'user', content: colour }] };
  await (await gateway.request('/v1/chat/completions', { key: secret, body })).text();
  await page.getByRole('link', { name: 'Back to keys' }).click();
  await page.getByRole('link', { name: `${colour} key`, exact: true }).click();
  own.push(new URL(page.url()).pathname);
  await page.getByRole('link', { name: 'Usage', exact: true }).click();
  await page.getByRole('region', { name: 'Requests, newest first' }).getByRole('link').first().click();
  await page.getByRole('heading', { name: 'Request details' }).waitFor();
  own.push(new URL(page.url()).pathname);
}

it('hides two organizations from each other, on every page of the menu and every address', async () => {
  const red = await openTenant('Red Works');
  const blue = await openTenant('Blue Works');
  await work(red, 'red');
  await work(blue, 'blue');
  for (const [tenant, other, colour] of [
    [red, blue, 'blue'],
    [blue, red, 'red'],
  ] as const) {
    const { page, complaints } = tenant.person;
    await page.goto(gateway.url);
    const links = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').all();
    const paths = await Promise.all(links.map((link) => link.getAttribute('href')));
    expect(paths).toEqual(expect.arrayContaining(['/portal/keys', '/portal/usage', '/portal/audit', '/portal/wallet']));
    const own = colour === 'blue' ? 'red' : 'blue';
    let seen = '';
    for (const path of paths.filter((one) => one !== '/docs')) {
      await page.goto(`${gateway.url}${path ?? '/'}`);
      const text = (await page.locator('body').textContent()) ?? '';
      seen += text;
      expect(text, path ?? '').not.toMatch(new RegExp(`${colour} (?:key|project|works)|${other.id}`, 'i'));
    }
    expect(seen).toContain(`${own} key`);
    expect(seen).toContain(`${own} project`);
    for (const path of other.own) {
      const answer = await page.goto(`${gateway.url}${path}`);
      expect([path, answer?.status()]).toEqual([path, 404]);
      await page.getByRole('heading', { name: 'Not found' }).waitFor();
    }
    for (const path of [`/portal/wallet?organization_id=${other.id}`, `/portal/organizations/${other.id}`]) {
      const answer = await page.goto(`${gateway.url}${path}`);
      expect([path, answer?.status() ?? 0]).toEqual([path, expect.toSatisfy((status: number) => status >= 400)]);
    }
    expect(complaints).toEqual([]);
  }
});

it('hides pages from a member, and says so at a known address', async () => {
  const { email } = await makePerson(gateway, { role: 'member' });
  const { page, complaints } = await enter(email);
  const menu = page.getByRole('navigation', { name: 'Pages' });
  for (const name of ['Keys', 'Invitations', 'Audit log', 'Webhooks', 'Engines', 'Organizations'])
    expect([name, await menu.getByRole('link', { name, exact: true }).count()]).toEqual([name, 0]);
  await page.getByText('Owners and administrators of this organization create API keys').waitFor();
  for (const path of [
    '/portal/keys',
    '/portal/keys/new',
    '/portal/audit',
    '/portal/engines',
    '/portal/organizations',
  ]) {
    const answer = await page.goto(`${gateway.url}${path}`);
    expect([path, answer?.status()]).toEqual([path, 403]);
    await page.getByRole('heading', { name: 'Not allowed' }).waitFor();
    expect(await page.getByRole('button').count()).toBe(0);
  }
  // The wallet is there to be read, and has no form to book with.
  await page.goto(`${gateway.url}/portal/wallet`);
  await page.getByText('Balance', { exact: true }).first().waitFor();
  expect(await page.getByRole('button', { name: /Post/ }).count()).toBe(0);
  expect(complaints).toEqual([]);
});
