import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { say } from '#test/cli/in-process.ts';
import { freePort } from '#test/free-port.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { givenKey } from '#test/programs/gateway-process.ts';
import { openSite, type RunGateway, type Site, usePlace, useSites } from '#test/terraform/run-gateway.ts';

/** Plans of a destroy, with real Terraform and a real SSH server. */

const newPlace = usePlace();
const secret = 'correct-horse-battery';

/** Keeps a file on its node until it is destroyed. */
const module = `
  variable "folder" { type = string }
  variable "password" { sensitive = true }
  variable "nodes" { default = [] }
  variable "ssh_user" { default = "" }
  variable "ssh_private_key" {
    default   = ""
    sensitive = true
  }
  resource "terraform_data" "words" { input = { word = "hello", note = "it says \${nonsensitive(var.password)}" } }
  resource "terraform_data" "login" { input = var.password }
  resource "terraform_data" "file" {
    for_each = { for node in var.nodes : node.id => node }
    input = {
      path        = "\${var.folder}/file"
      host        = each.value.address
      port        = each.value.ssh_port
      user        = var.ssh_user
      private_key = var.ssh_private_key
    }
    connection {
      host        = self.input.host
      port        = self.input.port
      user        = self.input.user
      private_key = self.input.private_key
    }
    provisioner "remote-exec" { inline = ["mkdir -p $(dirname \${self.input.path}) && touch \${self.input.path}"] }
    provisioner "remote-exec" {
      when   = destroy
      inline = ["rm \${self.input.path}"]
    }
  }`;

const makeEnv = async () => ({ HEADGATE_WEB_PORT: String(await freePort()) });
const newSite = useSites(makeEnv);
const inDomain = { public_domain: 'apps.example.com' };

/** Applies `planned` to a cluster of its own. */
async function applyPlanned<Gateway extends RunGateway>({ place, gateway, cluster }: Site<Gateway>) {
  await gateway.upload('planned', module, { 'manifest.yaml': 'web: { port: 8080 }\n' });
  const folder = place.folder();
  const run = await gateway.apply('planned', cluster.id, { folder, password: secret });
  await gateway.becomes(run.id, 'APPLIED');
  const destroy = (body: object): Promise<Body> => gateway.made(`/v1/runs/${run.id}/destroy`, body);
  // Everything that is applied has its web address.
  await eventually(async () => (await gateway.run(run.id)).url !== null);
  return { place, gateway, cluster, run, destroy, file: join(folder, 'file') };
}

const planOf = async (gateway: RunGateway, { id }: Body): Promise<Body> =>
  (await gateway.ask(`/v1/runs/${id}/plan`)).body;
const actions = ({ resources }: Body): string[][] =>
  resources.map(({ address, action }: Body) => [address.replace(/"node_\w+"/, 'node'), action]);

/** Returns the plan of a destroy by Terraform itself, for the module without nodes. */
function ofTerraform(): string[][] {
  const folder = mkdtempSync(join(tmpdir(), 'headgate-destroy-'));
  try {
    writeFileSync(join(folder, 'main.tf'), module);
    const terraform = (...args: string[]): string =>
      execFileSync('terraform', args, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
    const variables = ['-var=folder=/nowhere', `-var=password=${secret}`];
    terraform('init');
    terraform('apply', '-auto-approve', ...variables);
    terraform('plan', '-destroy', '-out=plan', ...variables);
    const { resource_changes: changes } = JSON.parse(terraform('show', '-json', 'plan'));
    return changes.map(({ address, change }: Body) => [address, change.actions[0]]);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe('a destroy that waits for its confirmation', () => {
  it('shows what it removes without secrets, outlives the gateway and its stack, and then removes it', async () => {
    const place = await newPlace();
    const env = await makeEnv();
    const site = await openSite(place, await place.start({ env }), inDomain);
    const { gateway, cluster, run, destroy, file } = await applyPlanned(site);
    const waiting = await destroy({ auto_apply: false });
    expect(await gateway.becomes(waiting.id, 'PLANNED')).toMatchObject({
      operation: 'destroy',
      auto_apply: false,
      plan: { add: 0, change: 0, remove: 3 },
    });
    const plan = await planOf(gateway, waiting);
    expect(actions(plan)).toEqual([['terraform_data.file[node]', 'delete'], ...ofTerraform()]);
    expect(JSON.stringify([plan, await gateway.log(waiting.id)])).not.toMatch(/correct-horse|PRIVATE KEY/);
    expect(JSON.stringify(plan)).toContain('hello');
    // Until the confirmation everything stays as it is, and the cluster waits.
    expect(await gateway.run(run.id)).toMatchObject({ status: 'APPLIED', url: expect.stringContaining('https://') });
    expect(existsSync(file)).toBe(true);
    const behind = await gateway.apply('planned', cluster.id, { folder: place.folder(), password: secret });
    expect(await gateway.run(behind.id)).toMatchObject({ status: 'PENDING', queue_position: 1 });
    await gateway.made(`/v1/runs/${behind.id}/cancel`);
    await gateway.kill();
    const second = await place.startHere({ home: gateway.home, env });
    await second.remove('/v1/stacks/planned');
    await eventually(async () => (await second.run(run.id)).url !== null);
    expect(await second.made(`/v1/runs/${waiting.id}/confirm`)).toMatchObject({ confirmed_at: expect.any(String) });
    expect(await second.run(run.id)).toMatchObject({ url: null });
    expect(await second.becomes(waiting.id, 'DESTROYED')).toMatchObject({
      changes: { add: 0, remove: 3 },
    });
    expect(existsSync(file)).toBe(false);
    expect(await second.run(run.id)).toMatchObject({ status: 'SUPERSEDED' });
    const { body } = await second.ask('/v1/audit?all_organizations=true&action=run.confirmed');
    expect(body.data.map(({ target_id: target, after }: Body) => [target, after.operation])).toEqual([
      [waiting.id, 'destroy'],
    ]);
  });

  it('changes nothing when it is discarded, or fails as PLAN_STALE', async () => {
    const { place, gateway, cluster, run, destroy, file } = await applyPlanned(await newSite(inDomain));
    const discarded = await destroy({ auto_apply: false });
    await gateway.becomes(discarded.id, 'PLANNED');
    expect(await gateway.made(`/v1/runs/${discarded.id}/discard`)).toMatchObject({ status: 'DISCARDED' });
    const stale = await destroy({ auto_apply: false });
    expect(stale.id).not.toBe(discarded.id);
    await gateway.becomes(stale.id, 'PLANNED');
    expect((await destroy({ auto_apply: false })).id).toBe(stale.id);
    const { body } = await gateway.ask(`/v1/clusters/${cluster.id}/access-identity/rotate`, { method: 'POST' });
    place.server.authorize(body.access_identity.public_key);
    await gateway.made(`/v1/runs/${stale.id}/confirm`);
    expect(await gateway.becomes(stale.id, 'FAILED')).toMatchObject({ failure_code: 'PLAN_STALE' });
    expect(await gateway.run(run.id)).toMatchObject({ status: 'APPLIED', url: expect.stringContaining('https://') });
    expect(existsSync(file)).toBe(true);
  });
});

describe('a destroy that only plans', () => {
  it('removes nothing, is no removal in progress, and shows that nothing is left', async () => {
    const { gateway, run, destroy, file } = await applyPlanned(await newSite(inDomain));
    const both = await gateway.ask(`/v1/runs/${run.id}/destroy`, { body: { plan_only: true, auto_apply: true } });
    expect([both.status, both.body.error.details[0].field]).toEqual([400, 'auto_apply']);
    const planned = await destroy({ plan_only: true });
    const real = await destroy({});
    expect((await gateway.ask(`/v1/runs/${run.id}/destroy`, { method: 'POST' })).body.id).toBe(real.id);
    expect(real.id).not.toBe(planned.id);
    expect(await gateway.becomes(planned.id, 'PLANNED_AND_FINISHED')).toMatchObject({
      plan_only: true,
      operation: 'destroy',
    });
    expect(actions(await planOf(gateway, planned))).toHaveLength(3);
    await gateway.becomes(real.id, 'DESTROYED');
    expect(existsSync(file)).toBe(false);
    const nothing = await destroy({ plan_only: true });
    expect(await gateway.becomes(nothing.id, 'PLANNED_AND_FINISHED')).toMatchObject({
      plan: { add: 0, change: 0, remove: 0 },
    });
    expect((await planOf(gateway, nothing)).resources).toEqual([]);
  });
});

describe('headgate runs destroy', () => {
  it('plans without a question, and asks before the plan is confirmed', async () => {
    const { gateway, run, file } = await applyPlanned(await newSite(inDomain));
    const headgate = (...args: string[]) => say(args, { url: gateway.url, key: givenKey });
    const only = await headgate('runs', 'destroy', run.id, '--plan-only', '--wait');
    expect([only.code, only.stdout]).toEqual([
      0,
      expect.stringContaining('PLANNED_AND_FINISHED; plan: 0 to add, 0 to change, 3 to remove'),
    ]);
    const waiting = await headgate('runs', 'destroy', run.id, '--confirm', '--wait');
    const id = /run_[0-9a-f]{32}/.exec(waiting.stdout)?.[0] ?? '';
    expect((await headgate('runs', 'plan', id)).stdout).toContain('  - terraform_data.words (delete)');
    expect(await headgate('runs', 'confirm', id)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('Destroy the resources of'),
    });
    expect(existsSync(file)).toBe(true);
    expect((await headgate('runs', 'confirm', id, '--yes', '--wait')).stdout).toContain('DESTROYED; 0 added');
    expect(existsSync(file)).toBe(false);
    expect(await headgate('runs', 'destroy', id, '--plan-only', '--confirm')).toMatchObject({ code: 2 });
  });
});
