import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { brokenFile, standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;
let folder: string;

const broken = brokenFile('broken');

beforeAll(async () => {
  folder = writeEngines({
    chat: standinFile('chat', { flags: ['--tpot-ms', '20', '--output-tokens', '4000', '--access-log'] }),
    broken,
  });
  gateway = await startGateway({ enginesDir: folder });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

const goto = (path: string) => person.page.goto(new URL(path, gateway.url).href);
const show = async (path: string, name: string): Promise<void> => {
  await goto(path);
  await expectPresentable(person.page, `admin-${name}`);
};

interface Made {
  readonly id: string;
  readonly management_key: string;
}

async function openOrganization(name: string): Promise<Made> {
  const made = await gateway.request('/v1/organizations', { body: { name } });
  expect(made.status).toBe(201);
  return (await made.json()) as Made;
}

const chat = (model: string, key?: string): Promise<Response> => {
  const body = { model, messages: [{ role: 'user', content: 'Hello!' }], max_tokens: 8 };
  return gateway.request('/v1/chat/completions', key === undefined ? { body } : { body, key });
};

describe('the engine pages', () => {
  it('show why an engine failed, and start it by the button once its file is fixed', async () => {
    const { page } = person;
    expect((await chat('broken')).status).toBe(503);
    await goto('/');
    await page.getByText('The engine broken failed.').waitFor();
    await expectPresentable(page, 'admin-overview-failed');
    await page.getByRole('link', { name: 'Cause and log' }).click();
    await page.getByRole('alert').getByText('not-there.js').first().waitFor();
    await expectPresentable(page, 'admin-engine-failed');
    writeFileSync(join(folder, 'broken.yaml'), standinFile('broken'));
    // It stands where one reads that the file is broken, and leads back there.
    await page.getByRole('button', { name: 'Reload engine files' }).click();
    await page.getByText('Engine files reloaded').waitFor();
    await page.getByRole('heading', { name: 'broken', exact: true }).waitFor();
    await page.getByRole('button', { name: /Retry|Start/ }).click();
    await page.getByText('Start requested.').waitFor();
    await page.getByText('Ready to serve.').waitFor();
    expect((await chat('broken')).status).toBe(200);
    expect(person.complaints).toEqual([]);
  });

  it('show the log while it is written, and the replicas', async () => {
    const { page } = person;
    expect((await chat('chat')).status).toBe(200);
    await goto('/portal/engines/chat');
    await page.getByText('New lines appear automatically').waitFor();
    const log = page.getByRole('log');
    const before = (await log.textContent()) ?? '';
    expect((await chat('chat')).status).toBe(200);
    await expect.poll(() => log.textContent()).not.toBe(before);
    await page.getByRole('region', { name: 'Replicas and their hosts' }).getByText('ready').waitFor();
    await expectPresentable(page, 'admin-engine');
    await goto('/portal/engines');
    await expectPresentable(page, 'admin-engines');
    expect(person.complaints).toEqual([]);
  });

  it('list the running requests, and cancel one by its button', async () => {
    const { page } = person;
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.key, maxRetries: 0 });
    const messages = [{ role: 'user' as const, content: 'Count for ever' }];
    const stream = await client.chat.completions.create({ model: 'chat', messages, user: 'ada', stream: true });
    await goto('/portal/engines/chat');
    await page.getByRole('cell', { name: 'ada' }).waitFor();
    await expectPresentable(page, 'admin-engine-requests');
    await page.getByRole('button', { name: 'Cancel request' }).click();
    await page.getByText('Request canceled.').waitFor();
    const read = async () => {
      for await (const chunk of stream) expect(chunk.object).toBe('chat.completion.chunk');
    };
    await expect(read()).rejects.toThrow('An operator canceled this request.');
    await page.getByText('No running requests').waitFor();
  });

  it('stop an engine after a question with the running requests, and start it again', async () => {
    const { page } = person;
    await goto('/portal/engines/chat');
    await page.getByRole('link', { name: 'Stop' }).click();
    await page.getByText('No requests are running on this engine').waitFor();
    await expectPresentable(page, 'admin-engine-stop');
    await page.getByRole('button', { name: 'Stop chat' }).click();
    await page.getByText('stopped by command').waitFor();
    expect((await chat('chat')).status).toBe(503);
    // The buttons follow the state without a reload.
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('Ready to serve.').waitFor();
    await page.getByRole('link', { name: 'Stop' }).waitFor();
    expect((await chat('chat')).status).toBe(200);
  });

  it('show file and field of a mistake on reload, and change nothing', async () => {
    const { page } = person;
    writeFileSync(join(folder, 'wrong.yaml'), standinFile('wrong').replace('driver: process', 'driver: hamster'));
    await goto('/portal/engines');
    await page.getByRole('button', { name: 'Reload engine files' }).click();
    await page.getByRole('alert').getByText('wrong.yaml').waitFor();
    await page.getByRole('link', { name: 'chat', exact: true }).first().waitFor();
    await expectPresentable(page, 'admin-engines-refused');
    const engines = (await (await gateway.request('/v1/admin/engines')).json()) as { data: { id: string }[] };
    expect(engines.data.map(({ id }) => id)).toEqual(['broken', 'chat']);
    rmSync(join(folder, 'wrong.yaml'));
  });
});

describe('deleting a key on its page', () => {
  it('ends the stream that an OpenAI client reads with the key', async () => {
    const { page } = person;
    await goto('/portal/keys/new');
    await page.getByLabel('Name').fill('streaming');
    await page.getByRole('button', { name: 'Create key' }).click();
    const apiKey = (await page.locator('#secret').textContent()) ?? '';
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey, maxRetries: 0 });
    const messages = [{ role: 'user' as const, content: 'Tell me a long story.' }];
    const stream = await client.chat.completions.create({ model: 'chat', messages, stream: true, max_tokens: 4000 });
    const first = Promise.withResolvers<void>();
    const reading = (async () => {
      for await (const _ of stream) first.resolve();
    })();
    const ended = reading.then(
      () => 'it was read to its end',
      (error: unknown) => String(error),
    );
    await first.promise;
    await goto('/portal/keys');
    await page.getByRole('link', { name: 'Revoke streaming' }).click();
    await page.getByRole('button', { name: 'Revoke streaming' }).click();
    await page.getByText('Key revoked').waitFor();
    expect(await ended).toMatch(/revoked/i);
  });
});

describe('the organization pages', () => {
  it('sort by spend, and change, suspend, reactivate and close an organization', async () => {
    const { page } = person;
    const tenant = await openOrganization('Blue Tenant');
    await goto('/portal/organizations');
    await page.getByRole('link', { name: 'Blue Tenant' }).click();
    await page.getByLabel('Maximum active keys').fill('9');
    await page.getByLabel('Requests per minute').fill('0');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.locator('#requests_per_minute-problem').waitFor();
    await page.getByLabel('Requests per minute').fill('120');
    await page.getByLabel('Allowed models').fill('chat');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Changes apply from the next request').waitFor();
    const key = tenant.management_key;
    const own = await (await gateway.request(`/v1/organizations/${tenant.id}`, { key })).json();
    expect(own).toMatchObject({ max_active_keys: 9, default_limits: { requests_per_minute: 120 }, models: ['chat'] });
    await expectPresentable(page, 'admin-organization');

    await page.getByRole('link', { name: 'Suspend' }).click();
    await expectPresentable(page, 'admin-organization-suspend');
    await page.getByRole('button', { name: 'Suspend Blue Tenant' }).click();
    await page.getByText('Organization suspended').waitFor();
    expect((await gateway.request('/v1/keys', { key })).status).toBe(403);
    await page.getByRole('button', { name: 'Reactivate' }).click();
    await page.getByText('Organization reactivated').waitFor();
    expect((await gateway.request('/v1/keys', { key })).status).toBe(200);
    await page.getByRole('link', { name: 'Close' }).click();
    await page.getByRole('button', { name: 'Close Blue Tenant' }).click();
    await page.getByText('Organization closed.').waitFor();
    expect((await gateway.request('/v1/keys', { key })).status).toBe(401);
    await show('/portal/organizations', 'organizations');
    await page.getByRole('link', { name: 'New organization' }).click();
    await page.getByLabel('Name').fill('Made Here');
    await page.getByRole('button', { name: 'Create organization' }).click();
    const secret = (await page.locator('#secret').textContent()) ?? '';
    expect((await gateway.request('/v1/keys', { key: secret })).status).toBe(200);
    await expectPresentable(page, 'admin-organization-made');
    await page.reload();
    expect(await page.content()).not.toContain(secret);
    expect(person.complaints).toEqual([]);
  });

  it('view an organization with its keys, wallet and users, and apply forms to it', async () => {
    const { page } = person;
    const tenant = await openOrganization('Looked At');
    await goto(`/portal/organizations/${tenant.id}`);
    await page.getByRole('button', { name: 'Wallet' }).click();
    await page.getByText('You are viewing Looked At').waitFor();
    await page.locator('summary', { hasText: 'Add credit' }).click();
    await page.getByLabel('Amount in USD').first().fill('12.50');
    await page.getByLabel('Reference').first().fill('looked-at-1');
    await page.getByRole('button', { name: 'Post credit' }).click();
    await page.getByText('Credit added.').waitFor();
    const key = tenant.management_key;
    expect(await (await gateway.request('/v1/wallet', { key })).json()).toMatchObject({ balance: '12.5' });
    await page.getByRole('link', { name: 'Keys', exact: true }).click();
    await page.getByText('Active (1 of 5)').waitFor();
    await expectPresentable(page, 'admin-view-keys');
    await page.getByRole('link', { name: 'New key' }).click();
    await page.getByLabel('Name').fill('made by the operator');
    await page.getByRole('button', { name: 'Create key' }).click();
    const secret = (await page.locator('#secret').textContent()) ?? '';
    expect((await chat('chat', secret)).status).toBe(200);
    await page.getByRole('button', { name: 'Back to your organization' }).click();
    await page.getByRole('heading', { name: 'Looked At' }).waitFor();
    await page.getByRole('link', { name: 'Keys', exact: true }).click();
    expect(await page.getByText('made by the operator').count()).toBe(0);
    expect(person.complaints).toEqual([]);
  });
});

describe('the pages for users, projects and the audit log', () => {
  it('create, change and remove users, and show errors at the fields', async () => {
    const { page } = person;
    await show('/portal/users', 'users');
    await page.getByRole('link', { name: 'New user' }).click();
    await page.getByLabel('Name').fill('Ada Lovelace');
    await page.getByLabel('Email').fill('ada.example.com');
    await page.getByLabel('Initial password').fill('correct horse');
    await page.getByRole('button', { name: 'Create user' }).click();
    await page.locator('#email-problem').waitFor();
    await expectPresentable(page, 'admin-user-new');
    await page.getByLabel('Email').fill('ada@example.com');
    await page.getByLabel('Initial password').fill('correct horse');
    await page.getByRole('button', { name: 'Create user' }).click();
    await page.getByText('User created').waitFor();
    await page.getByRole('link', { name: 'Ada Lovelace' }).click();
    await page.getByLabel(/^Role in/).selectOption('admin');
    await page.getByRole('button', { name: 'Change role' }).click();
    await page.getByText('Role changed').waitFor();
    await expectPresentable(page, 'admin-user');
    await page.getByRole('link', { name: 'Remove' }).click();
    await expectPresentable(page, 'admin-user-remove');
    await page.getByRole('button', { name: 'Remove Ada Lovelace' }).click();
    await page.getByText('User removed').waitFor();
    expect(await page.getByText('ada@example.com').count()).toBe(0);
    expect(person.complaints).toEqual([]);
  });

  it('create, change, archive and unarchive projects', async () => {
    const { page } = person;
    await goto('/portal/projects');
    await page.getByRole('link', { name: 'New project' }).click();
    await page.getByLabel('Name').fill('nightly');
    await page.getByLabel('Description').fill('what runs at night');
    await page.getByRole('button', { name: 'Create project' }).click();
    await page.getByText('Project created').waitFor();
    await expectPresentable(page, 'admin-projects');
    await page.getByRole('link', { name: 'nightly' }).click();
    await page.getByLabel('Public').check();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Project saved').waitFor();
    await expectPresentable(page, 'admin-project');
    await page.getByRole('link', { name: 'Archive' }).click();
    await page.getByRole('button', { name: 'Archive nightly' }).click();
    await page.getByText('Project archived').first().waitFor();
    await page.getByRole('button', { name: 'Unarchive' }).click();
    await page.getByText('Project unarchived').waitFor();
    expect(person.complaints).toEqual([]);
  });

  it('describe changes in the audit log, with filters', async () => {
    const { page } = person;
    await show('/portal/audit', 'audit');
    await page.getByText('created the project').first().waitFor();
    // Filters are days of UTC, so times are, in Tokyo as well; its own are on hover.
    const moment = page.locator('tbody time').first();
    const iso = (await moment.getAttribute('datetime')) ?? '';
    expect(await moment.textContent()).toBe(iso.slice(0, 19).replace('T', ' '));
    expect(await moment.getAttribute('title')).toMatch(/GMT\+9|JST/);
    await page.locator('.entry summary').first().click();
    await expectPresentable(page, 'admin-audit-open');
    await page.getByLabel('Action').selectOption('project.archived');
    await page.getByRole('button', { name: 'Show' }).click();
    await page.getByText('archived the project').first().waitFor();
    expect(await page.locator('tbody tr').count()).toBe(1);
    await show('/portal/organization', 'own-organization');
    expect(person.complaints).toEqual([]);
  });
});
