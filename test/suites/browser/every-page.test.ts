import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { pagePaths } from '#edge/portal/portal.ts';
import { type Furnished, furnish } from '#test/portal/furnished.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

/** No page is left out: each is looked at by axe in both themes, and has its pictures, here or by the test of what it is for. */

/** The pictures of pages that other tests of this folder take. */
const elsewhere: Readonly<Record<string, string>> = {
  '/portal/keys': 'keys',
  '/portal/keys/new': 'keys-new',
  '/portal/keys/:id': 'key',
  '/portal/keys/:id/delete': 'key-delete',
  '/portal/keys/:id/rotate': 'key-rotate',
  '/portal/usage': 'usage',
  '/portal/usage/:id': 'request',
  '/portal/batches': 'batches-some',
  '/portal/batches/:id': 'batch',
  '/portal/wallet': 'wallet',
  '/portal/budgets': 'budgets',
  '/portal/budgets/new': 'budget-new',
  '/portal/budgets/:id': 'budget',
  '/portal/budgets/:id/reset': 'budget-reset',
  '/portal/models': 'models',
  '/portal/models/:id': 'model',
  '/portal/playground': 'playground',
  '/portal/sessions': 'sessions',
  '/portal/account': 'account',
  '/portal/invitations': 'invitations',
  '/portal/projects': 'admin-projects',
  '/portal/projects/:id': 'admin-project',
  '/portal/projects/:id/limits': 'project-limits-change',
  '/portal/users': 'users',
  '/portal/users/new': 'admin-user-new',
  '/portal/users/:id': 'admin-user',
  '/portal/users/:id/remove': 'admin-user-remove',
  '/portal/organization': 'own-organization',
  '/portal/webhooks': 'webhooks',
  '/portal/webhooks/new': 'webhook-new',
  '/portal/webhooks/:id': 'webhook',
  '/portal/webhooks/:id/rotate': 'webhook-rotate',
  '/portal/webhooks/:id/delete': 'webhook-delete',
  '/portal/audit': 'audit',
  '/portal/engines': 'admin-engines',
  '/portal/engines/:id': 'admin-engine',
  '/portal/engines/:id/stop': 'admin-engine-stop',
  '/portal/organizations': 'organizations',
  '/portal/organizations/:id': 'admin-organization',
  '/portal/organizations/:id/suspend': 'admin-organization-suspend',
  '/portal/stacks': 'stacks',
  '/portal/stacks/:name': 'stack',
  '/portal/stacks/:name/apply': 'apply',
  '/portal/runs': 'runs',
  '/portal/runs/:id': 'run-applied',
  '/portal/runs/:id/destroy': 'run-destroy',
  '/portal/clusters': 'clusters',
  '/portal/clusters/:id': 'cluster',
  '/portal/costs': 'costs',
  '/portal/costs/rates': 'rates',
  '/portal/costs/margins': 'margins',
};

/** Answers that are no page. */
const noPages = [
  '/portal/usage/find',
  '/portal/usage/requests.csv',
  '/portal/usage/requests.ndjson',
  '/portal/batches/:id/output',
  '/portal/batches/:id/errors',
  '/portal/playground/models',
  '/portal/engines/:id/log',
  '/portal/engines/:id/charts',
  '/portal/stacks/:name/download',
  '/portal/stacks/:name/icon',
  '/portal/runs/:id/log',
  '/portal/costs.csv',
  '/portal/wallet/statements/:month/json',
  '/portal/wallet/statements/:month/csv',
];

/** Pages that are looked at here, by the name of their pictures. */
const here = (of: Furnished): Readonly<Record<string, readonly [pattern: string, path: string]>> => ({
  'project-new': ['/portal/projects/new', '/portal/projects/new'],
  'project-archive': ['/portal/projects/:id/archive', `/portal/projects/${of.projectId}/archive`],
  'service-account-new': [
    '/portal/projects/:id/service-accounts/new',
    `/portal/projects/${of.projectId}/service-accounts/new`,
  ],
  'service-account-delete': [
    '/portal/projects/:id/service-accounts/:account/delete',
    `/portal/projects/${of.projectId}/service-accounts/${of.serviceAccountId}/delete`,
  ],
  'engine-file': ['/portal/engine-file', '/portal/engine-file?engine=standin-chat'],
  'engine-restart': ['/portal/engines/:id/restart', '/portal/engines/standin-chat/restart'],
  'organization-new': ['/portal/organizations/new', '/portal/organizations/new'],
  'organization-close': ['/portal/organizations/:id/close', `/portal/organizations/${of.otherOrganizationId}/close`],
  'stack-upload': ['/portal/stacks/new', '/portal/stacks/new'],
  'stack-edit': ['/portal/stacks/:name/edit', `/portal/stacks/${of.stack}/edit`],
  'stack-diff': ['/portal/stacks/:name/diff', `/portal/stacks/${of.stack}/diff`],
  'stack-revert': ['/portal/stacks/:name/revert', `/portal/stacks/${of.stack}/revert?version=1`],
  'stack-delete': ['/portal/stacks/:name/delete', `/portal/stacks/${of.stack}/delete`],
  'run-expiry': ['/portal/runs/:id/expiry', `/portal/runs/${of.runId}/expiry`],
  'run-forget': ['/portal/runs/:id/forget', `/portal/runs/${of.runId}/forget`],
  'cost-series': ['/portal/costs/series', '/portal/costs/series?step=1d&group=cluster'],
  quarantine: ['/portal/quarantine', '/portal/quarantine'],
  search: ['/portal/search', '/portal/search?q=wal'],
  'wallet-statement': [
    '/portal/wallet/statements/:month',
    `/portal/wallet/statements/${new Date().toISOString().slice(0, 7)}`,
  ],
  'cluster-new': ['/portal/clusters/new', '/portal/clusters/new'],
  'cluster-allocations': ['/portal/clusters/:id/allocations', `/portal/clusters/${of.clusterId}/allocations`],
  'cluster-edit': ['/portal/clusters/:id/edit', `/portal/clusters/${of.clusterId}/edit`],
  'cluster-delete': ['/portal/clusters/:id/delete', `/portal/clusters/${of.clusterId}/delete`],
  'cluster-rotate': ['/portal/clusters/:id/rotate', `/portal/clusters/${of.clusterId}/rotate`],
  'node-new': ['/portal/clusters/:id/nodes/new', `/portal/clusters/${of.clusterId}/nodes/new`],
  'node-edit': ['/portal/clusters/:id/nodes/:node/edit', `/portal/clusters/${of.clusterId}/nodes/${of.nodeId}/edit`],
  'node-delete': [
    '/portal/clusters/:id/nodes/:node/delete',
    `/portal/clusters/${of.clusterId}/nodes/${of.nodeId}/delete`,
  ],
});

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;
let furnished: Furnished;

beforeAll(async () => {
  gateway = await startGateway();
  furnished = await furnish(gateway);
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

it('has screenshots of every page, in this test or in another', () => {
  const patterns = [...Object.keys(elsewhere), ...noPages, ...Object.values(here(furnished)).map(([one]) => one)];
  expect(patterns.toSorted()).toEqual(pagePaths.toSorted());
  const tests = readdirSync(import.meta.dirname).filter(
    (name) => name.endsWith('.test.ts') && name !== 'every-page.test.ts',
  );
  const texts = tests.map((name) => readFileSync(new URL(name, import.meta.url), 'utf8')).join('\n');
  for (const picture of Object.values(elsewhere)) expect(texts).toContain(`'${picture}'`);
});

it('shows the remaining forms and questions without faults, light and dark, at 1280 and 360 pixels', async () => {
  for (const [name, [, path]] of Object.entries(here(furnished))) {
    const answer = await person.page.goto(`${gateway.url}${path}`);
    expect([name, answer?.status()]).toEqual([name, 200]);
    await expectPresentable(person.page, name);
  }
  expect(person.complaints).toEqual([]);
});

it("shows handed-out links, a failed run and another organization's usage without faults", async () => {
  const { page } = person;
  await page.goto(`${gateway.url}/portal/invitations`);
  await page.getByLabel('Email address').fill('somebody@example.com');
  await page.getByRole('button', { name: 'Invite' }).click();
  await page.getByText('/invitation?token=').first().waitFor();
  await expectPresentable(page, 'invitation-made');
  await page.goto(`${gateway.url}/portal/users/${furnished.userId}`);
  await page.getByRole('button', { name: 'Create reset link' }).click();
  await page.getByText('/reset-password?token=').first().waitFor();
  await expectPresentable(page, 'reset-link-made');
  await page.goto(`${gateway.url}/portal/runs/${furnished.runId}`);
  await expectPresentable(page, 'run-failed');
  await page.goto(`${gateway.url}/portal/organizations/${furnished.otherOrganizationId}`);
  await page.getByRole('button', { name: 'Usage', exact: true }).click();
  await page.getByText('You are viewing Water Works').waitFor();
  await expectPresentable(page, 'view-usage');
  expect(person.complaints).toEqual([]);
});
