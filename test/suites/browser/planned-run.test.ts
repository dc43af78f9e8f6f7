import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

/** A plan that a person reads, discards and confirms, with real Terraform. */

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;
let runsDir = '';
const secret = 'correct horse battery';
const main = `
  variable "password" { sensitive = true }
  resource "terraform_data" "queue" { input = "three replicas" }
  resource "terraform_data" "login" { input = var.password }`;

beforeAll(async () => {
  runsDir = await mkdtemp('/tmp/headgate-plans-browser-');
  await chmod(runsDir, 0o711);
  gateway = await startGateway({ env: { HEADGATE_RUNS_DIR: runsDir } });
  const nodes = [{ name: 'n-1', address: '10.0.0.7', hardware_profile: 'h100' }];
  await gateway.request('/v1/clusters', { body: { name: 'research', nodes } });
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': main }))], 'queue.zip'));
  form.append('name', 'queue');
  const headers = { authorization: `Bearer ${gateway.key}` };
  await fetch(new URL('/v1/stacks', gateway.url), { method: 'POST', headers, body: form });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(async () => {
  await gateway.stop();
  await rm(runsDir, { recursive: true, force: true, maxRetries: 50, retryDelay: 100 });
});

async function apply(choice: string): Promise<void> {
  const { page } = person;
  await page.goto(new URL('/portal/stacks/queue/apply', gateway.url).href);
  await page.getByLabel(choice).check();
  await page.getByLabel('password (required)').fill(secret);
  await page.getByRole('button', { name: 'Apply' }).click();
}

const becomes = (status: string): Promise<void> =>
  person.page.locator('#live .badge', { hasText: status }).first().waitFor();

describe('a plan on the page of its run', () => {
  it('appears without a reload, is discarded, and confirmed', async () => {
    const { page } = person;
    await apply('Wait for confirmation');
    await becomes('waits for confirmation');
    await page.getByRole('heading', { name: 'Planned changes' }).waitFor();
    await page.getByText('terraform_data.queue', { exact: true }).first().waitFor();
    await page.getByText('three replicas').waitFor();
    await expectPresentable(page, 'run-planned');
    await page.getByRole('button', { name: 'Discard' }).click();
    await page.getByText('Plan discarded.').waitFor();
    await becomes('discarded');
    expect(await page.getByRole('button', { name: 'Confirm and apply' }).count()).toBe(0);

    await apply('Wait for confirmation');
    await becomes('waits for confirmation');
    await page.getByRole('button', { name: 'Confirm and apply' }).click();
    await page.getByText('Plan confirmed.').waitFor();
    await becomes('applied');
    await page.getByText('2 added, 0 changed, 0 removed.').first().waitFor();
    await expectPresentable(page, 'run-confirmed');
    expect(await page.content()).not.toContain(secret);
  });

  it('is shown before a destroy, which removes the resources after its confirmation', async () => {
    const { page } = person;
    await page.getByRole('link', { name: 'Destroy' }).click();
    await page.getByRole('button', { name: 'Plan first' }).waitFor();
    await expectPresentable(page, 'run-destroy-or-plan');
    await page.getByRole('button', { name: 'Plan first' }).click();
    await becomes('waits for confirmation');
    await page.getByText('three replicas').first().waitFor();
    await expectPresentable(page, 'run-destroy-planned');
    await page.getByRole('button', { name: 'Confirm and destroy' }).click();
    await page.getByText('Plan confirmed.').waitFor();
    await becomes('destroyed');
    await page.getByText('0 added, 0 changed, 2 removed.').first().waitFor();
    expect(await page.content()).not.toContain(secret);
  });

  it('expires when the person says so', async () => {
    const { page } = person;
    await page.goto(new URL('/portal/stacks/queue/apply', gateway.url).href);
    await page.getByLabel('Expires after').selectOption('3 days');
    await page.getByLabel('password (required)').fill(secret);
    await expectPresentable(page, 'run-apply-expiring');
    await page.getByRole('button', { name: 'Apply' }).click();
    await becomes('applied');
    await page.getByRole('link', { name: 'Change expiry' }).click();
    await page.getByText('queue expires at').waitFor();
    await expectPresentable(page, 'run-expiry');
    await page.getByLabel('Expires, from now').selectOption('Never');
    await page.getByRole('button', { name: 'Change expiry' }).click();
    await page.getByText('Expiry changed.').waitFor();
    expect(await page.locator('dl').textContent()).toMatch(/Expires\s*never/);
    await page.goto(new URL('/portal/runs', gateway.url).href);
    await page.getByRole('columnheader', { name: 'Expires' }).waitFor();
  });

  it('is checked for drift when the person asks', async () => {
    const { page } = person;
    await page.goto(new URL('/portal/runs?status=APPLIED', gateway.url).href);
    await page.getByRole('link', { name: 'queue' }).first().click();
    await page.getByText('Not checked yet.').waitFor();
    await expectPresentable(page, 'run-without-drift-check');
    await page.getByRole('button', { name: 'Check for drift now' }).click();
    await page.getByText(/^No drift was found/).waitFor();
    await expectPresentable(page, 'run-without-drift');
    await page.getByRole('link', { name: 'Last check' }).click();
    await page.getByText('The check is complete. It changed nothing.').waitFor();
    await expectPresentable(page, 'drift-check');
    expect(await page.getByRole('button', { name: 'Check for drift now' }).count()).toBe(0);
  });

  it('changes nothing when the run only plans', async () => {
    await apply('Change nothing');
    await becomes('planned');
    await person.page.getByText('The run made a plan only. It changed nothing.').waitFor();
    expect(await person.page.getByRole('button', { name: 'Confirm and apply' }).count()).toBe(0);
    expect(person.complaints).toEqual([]);
  });
});
