import { chmod, glob, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

/** The platform as a person has it: real Terraform, in bubblewrap, started from the apply form. */

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;
let runsDir = '';

beforeAll(async () => {
  runsDir = await mkdtemp('/tmp/headgate-runs-browser-');
  await chmod(runsDir, 0o711);
  gateway = await startGateway({ env: { HEADGATE_RUNS_DIR: runsDir } });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(async () => {
  await gateway.stop();
  await rm(runsDir, { recursive: true, force: true, maxRetries: 50, retryDelay: 100 });
});

const show = async (path: string, name: string): Promise<void> => {
  await person.page.goto(new URL(path, gateway.url).href);
  await expectPresentable(person.page, name);
};

const secret = 'correct horse battery';

/** Prints, then waits for the file `go` beside it. */
const main = `
  variable "password" {
    sensitive   = true
    description = "Whoever knows it may come in."
  }
  variable "replicas" {
    type    = number
    default = 2
  }
  variable "fast" {
    type    = bool
    default = false
  }
  variable "labels" {
    type    = map(string)
    default = { team = "research" }
  }
  variable "hosts" {
    type    = list(string)
    default = ["a.example", "b.example"]
  }
  variable "greeting" { default = "hello" }
  variable "nodes" { type = any }
  resource "terraform_data" "queue" {
    input = "$\{var.greeting} from $\{length(var.hosts)} hosts, $\{var.replicas} replicas, $\{var.fast}, $\{var.labels.team}"
    provisioner "local-exec" {
      command = "echo $((6 * 7)) jobs wait; until [ -e go ]; do sleep 0.1; done; echo $((6 * 7)) jobs done"
    }
  }
  output "said" { value = terraform_data.queue.output }
  output "password" {
    value     = var.password
    sensitive = true
  }`;

const manifest = `
name: queue
title: Job queue
description: Runs jobs one after the other.
category: Scheduler
icon: 🧵
applicable_profiles: [h100-8x]
`;

/** Lets the run go on that waits. */
async function letGo(): Promise<void> {
  for await (const file of glob(join(runsDir, '**', 'main.tf'))) await writeFile(join(dirname(file), 'go'), '');
}

describe('the platform pages', () => {
  it('say what to do when there is no data', async () => {
    await show('/portal/stacks', 'stacks');
    await show('/portal/stacks/notebook/apply', 'apply-no-cluster');
    await show('/portal/runs', 'runs-empty');
    await show('/portal/clusters', 'clusters-empty');
    await show('/portal/costs', 'costs-empty');
    await show('/portal/costs/rates', 'rates-empty');
    await show('/portal/costs/margins', 'margins-empty');
    expect(person.complaints).toEqual([]);
  });

  it('create a cluster with a node, count its hours, and show its public key', async () => {
    const { page } = person;
    await page.goto(new URL('/portal/clusters', gateway.url).href);
    await page.getByRole('link', { name: 'Create cluster' }).click();
    await page.getByLabel('Name').fill('Research Lab');
    await page.getByRole('button', { name: 'Create cluster' }).click();
    await page.locator('#name-problem').waitFor();
    await expectPresentable(page, 'cluster-refused');
    await page.getByLabel('Name').fill('research');
    await page.getByRole('button', { name: 'Create cluster' }).click();
    await page.getByRole('heading', { name: 'research' }).waitFor();
    expect(await page.locator('#public-key').textContent()).toMatch(/^ssh-ed25519 /);
    for (const [name, profile] of [
      ['gpu-1', 'h100-8x'],
      ['gpu-2', 'a100'],
    ] as const) {
      await page.getByRole('link', { name: 'Add a node' }).click();
      await page.getByLabel('Name').fill(name);
      await page.getByLabel('Hardware profile').fill(profile);
      await page.getByLabel('GPUs').fill('8');
      await page.getByLabel('Address', { exact: true }).fill('10.0.0.7');
      await page.getByRole('button', { name: 'Add node' }).click();
      await page.getByText('Node added.').waitFor();
    }
    await page.getByText('gpu-1: allocate').click();
    await page.getByRole('button', { name: 'Allocate node' }).first().click();
    await page.getByText('Node allocated.').waitFor();
    await expectPresentable(page, 'cluster');
    await show('/portal/clusters', 'clusters');
    expect(person.complaints).toEqual([]);
  });

  it('upload a stack, ask for its inputs, follow its run, and destroy it', async () => {
    const { page } = person;
    await page.goto(new URL('/portal/stacks', gateway.url).href);
    await page.getByRole('link', { name: 'Upload a stack' }).click();
    await page.getByRole('button', { name: 'Upload' }).click();
    await page.getByRole('alert').waitFor();
    await expectPresentable(page, 'stack-upload-refused');
    const buffer = Buffer.from(packOf({ 'main.tf': main, 'manifest.yaml': manifest }));
    await page
      .getByLabel('Zip file', { exact: true })
      .setInputFiles({ name: 'queue.zip', mimeType: 'application/zip', buffer });
    await page.getByRole('button', { name: 'Upload' }).click();
    await page.getByRole('heading', { name: 'Job queue' }).waitFor();
    await expectPresentable(page, 'stack');
    await page.getByRole('link', { name: 'Apply' }).click();
    await expectPresentable(page, 'apply');
    expect(await page.getByLabel('Target').inputValue()).toBe('gpu-1');
    expect(await page.locator('#node option:disabled').allTextContents()).toHaveLength(2);

    await page.getByLabel('greeting').fill('welcome');
    await page.getByLabel('replicas').fill('many');
    await page.getByLabel('fast').selectOption('Yes');
    await page.getByLabel('password (required)').fill(secret);
    await page.getByRole('button', { name: 'Apply' }).click();
    await page.getByText('replicas must be a number').waitFor();
    await expectPresentable(page, 'apply-refused');
    expect(await page.getByLabel('greeting').inputValue()).toBe('welcome');
    expect(await page.getByLabel('password (required)').inputValue()).toBe('');
    expect(await page.content()).not.toContain(secret);
    await page.getByLabel('replicas').fill('3');
    await page.getByLabel('password (required)').fill(secret);
    await page.getByRole('button', { name: 'Apply' }).click();

    // The line comes while the run waits: nobody loads the page again.
    await page.getByText('42 jobs wait').waitFor();
    await page.locator('.progress [aria-current]', { hasText: 'executing' }).waitFor();
    await expectPresentable(page, 'run-live');
    await show('/portal/runs', 'runs');
    await page.goBack();
    await page.getByText('42 jobs wait').waitFor();
    await letGo();
    await page.getByText('42 jobs done').waitFor();
    await page.getByText('The run has ended').waitFor();
    await page.getByText('welcome from 2 hosts, 3 replicas, true, research').waitFor();
    await page.locator('#live .badge', { hasText: 'applied' }).waitFor();
    await expectPresentable(page, 'run-applied');
    // Lines stand as they were written, with no space or line that the page put there.
    await page.reload();
    const lines = await page.locator('#log .log-line').allTextContents();
    expect(lines.length).toBeGreaterThan(2);
    expect(lines.filter((line) => !/^\d\d:\d\d:\d\d \S.*$/.test(line))).toEqual([]);
    expect(await page.content()).not.toContain(secret);

    await page.getByRole('link', { name: 'Destroy' }).click();
    await expectPresentable(page, 'run-destroy');
    await page.getByRole('button', { name: 'Destroy queue' }).click();
    await page.locator('#live .badge', { hasText: 'destroyed' }).waitFor();
    await expectPresentable(page, 'run-destroyed');
    expect(person.complaints).toEqual([]);
  });
});
