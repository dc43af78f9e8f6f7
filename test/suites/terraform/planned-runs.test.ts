import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { say } from '#test/cli/in-process.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { givenKey } from '#test/programs/gateway-process.ts';
import { startRedis } from '#test/redis.ts';
import { openSite, type RunGateway, type Site, usePlace, useSites } from '#test/terraform/run-gateway.ts';

/** Plans that wait for somebody to confirm them, with real Terraform and a real SSH server. */

const newPlace = usePlace();
const secret = 'correct-horse-battery';

/** Writes a file on its node, with the time of its plan. */
const module = `
  variable "folder" { default = "/nowhere" }
  variable "word" { default = "first" }
  variable "password" {
    sensitive = true
    default   = "none-given"
  }
  variable "nodes" { default = [] }
  variable "ssh_user" { default = "" }
  variable "ssh_private_key" {
    default   = ""
    sensitive = true
  }
  resource "terraform_data" "words" {
    input = { word = var.word, note = "it says \${nonsensitive(var.password)}" }
  }
  resource "terraform_data" "login" { input = var.password }
  resource "terraform_data" "file" {
    count            = length(var.nodes) > 0 ? 1 : 0
    triggers_replace = var.word
    input            = plantimestamp()
    connection {
      host        = var.nodes[0].address
      port        = var.nodes[0].ssh_port
      user        = var.ssh_user
      private_key = var.ssh_private_key
    }
    provisioner "remote-exec" { inline = ["mkdir -p \${var.folder} && echo \${var.word} \${self.input} >> \${var.folder}/applied"] }
  }
  output "planned_at" { value = one(terraform_data.file[*].output) }`;

const newSite = useSites();

/** Applies `planned` to the cluster of a site, with a folder on its node. */
function preparePlanned<Gateway extends RunGateway>({ place, gateway, cluster }: Site<Gateway>) {
  const folder = place.folder();
  const apply = (more: object, inputs: object = {}): Promise<Body> =>
    gateway.made('/v1/stacks/planned/apply', { cluster_id: cluster.id, inputs: { folder, ...inputs }, ...more });
  return { place, gateway, cluster, folder, apply };
}

/** On the gateway of all tests. */
async function newPlanned() {
  const site = await newSite();
  await site.gateway.upload('planned', module);
  return preparePlanned(site);
}

/** On a gateway of the test's own, which it may end. */
async function newPlannedApart(env = {}) {
  const place = await newPlace();
  const gateway = await place.start({ env });
  await gateway.upload('planned', module);
  return preparePlanned(await openSite(place, gateway));
}

const uuidOf = (id: string): string => id.replace('cluster_', '').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
const planOf = (gateway: RunGateway, { id }: Body): Promise<Body> =>
  gateway.ask(`/v1/runs/${id}/plan`).then(({ body }) => body);
const applied = (folder: string): string[] =>
  existsSync(join(folder, 'applied')) ? readFileSync(join(folder, 'applied'), 'utf8').trim().split('\n') : [];
const actions = ({ resources }: Body) => resources.map(({ address, action }: Body) => [address, action]);

/** Addresses and actions that Terraform itself shows for a plan of the same module in an empty folder. */
function ofTerraform(): unknown {
  const folder = mkdtempSync(join(tmpdir(), 'hg-plan-'));
  try {
    writeFileSync(join(folder, 'main.tf'), module);
    const terraform = (...args: string[]): string => execFileSync('terraform', args, { cwd: folder, encoding: 'utf8' });
    terraform('init');
    const node = '[{"address":"127.0.0.1","ssh_port":22}]';
    terraform('plan', '-out=plan', `-var=nodes=${node}`);
    const { resource_changes: changes } = JSON.parse(terraform('show', '-json', 'plan'));
    return changes.map(({ address, change }: Body) => [address, change.actions[0]]);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe('a plan that waits for its confirmation', () => {
  it('shows its changes without secrets, outlives the gateway, and is the plan that is applied', async () => {
    const { place, gateway, folder, apply } = await newPlannedApart();
    const run = await apply({ auto_apply: false }, { password: secret });
    const planned = await gateway.becomes(run.id, 'PLANNED');
    expect(planned).toMatchObject({ auto_apply: false, plan_only: false, ended_at: null, plan: { add: 3, change: 0 } });
    expect(Date.parse(planned.confirm_by) - Date.parse(planned.planned_at)).toBe(24 * 3_600_000);
    const plan = await planOf(gateway, run);
    expect(actions(plan)).toEqual(ofTerraform());
    const file = plan.resources.find(({ address }: Body) => address === 'terraform_data.file[0]');
    const shownTime = file.attributes.find(({ name }: Body) => name === 'input').after;
    expect(JSON.stringify([plan, await gateway.log(run.id)])).not.toContain(secret);
    expect(plan.resources.find(({ address }: Body) => address === 'terraform_data.login').attributes).toContainEqual({
      name: 'input',
      sensitive: true,
      unknown: false,
    });
    // The cluster's other runs wait with it, and nothing of it is on the machine.
    const behind = await apply({}, { word: 'second' });
    expect(await gateway.run(behind.id)).toMatchObject({ status: 'PENDING', queue_position: 1 });
    await gateway.kill();
    const second = await place.startHere({ home: gateway.home });
    expect(await second.run(run.id)).toMatchObject({ status: 'PLANNED' });
    expect(readdirSync(join(gateway.home.dataDir, 'runs')).filter((name) => !name.startsWith('.'))).toEqual([]);
    expect(applied(folder)).toEqual([]);
    expect(await second.made(`/v1/runs/${run.id}/confirm`)).toMatchObject({ confirmed_at: expect.any(String) });
    expect((await second.ask(`/v1/runs/${run.id}/confirm`, { method: 'POST' })).status).toBe(409);
    const done = await second.becomes(run.id, 'APPLIED', 'SUPERSEDED');
    expect(done).toMatchObject({
      outputs: { planned_at: { value: shownTime } },
      changes: { operation: 'apply', add: 3 },
    });
    await second.becomes(behind.id, 'APPLIED');
    expect(applied(folder).map((line) => line.split(' ')[0])).toEqual(['first', 'second']);
    expect(applied(folder)[0]).toBe(`first ${shownTime}`);
    const [kept] = await place.sql`select count(*)::int as plans from run_plans where plan is not null`;
    expect(kept?.['plans']).toBeLessThanOrEqual(1);
    const { body: audit } = await second.ask('/v1/audit?all_organizations=true&action=run.confirmed');
    expect(audit.data.map(({ target_id: target }: Body) => target)).toEqual([run.id]);
  });

  it('does not show what an earlier run was given, which providers copy without its mark', async () => {
    const { gateway, apply } = await newPlanned();
    await gateway.becomes((await apply({}, { password: secret })).id, 'APPLIED');
    const run = await apply({ auto_apply: false }, { password: 'another-secret-word' });
    await gateway.becomes(run.id, 'PLANNED');
    const plan = await planOf(gateway, run);
    expect(actions(plan)).toContainEqual(['terraform_data.login', 'update']);
    expect(JSON.stringify([plan, await gateway.log(run.id)])).not.toMatch(/correct-horse|another-secret/);
  });

  it('is applied once when it is confirmed while its folder is removed, or decided at two gateways', async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.stop());
    const env = { REDIS_URL: redis.url };
    const { place, gateway, cluster, folder, apply } = await newPlannedApart(env);
    await gateway.becomes((await apply({})).id, 'APPLIED');
    const fences = async () => (await place.sql`select fence from runs order by id`).map(({ fence }) => fence);
    const slow = await apply({ auto_apply: false }, { word: 'slow' });
    // Storing a state takes this lock, and so does the removal of the folder.
    const lock = await place.sql.reserve();
    await lock`select pg_advisory_lock(hashtextextended(${`headgate runs ${uuidOf(cluster.id)}`}, 0))`;
    await gateway.becomes(slow.id, 'PLANNED');
    await gateway.made(`/v1/runs/${slow.id}/confirm`);
    const second = await place.start({ home: gateway.home, env });
    expect(await second.run(slow.id)).toMatchObject({ status: 'PENDING' });
    await lock`select pg_advisory_unlock_all()`;
    lock.release();
    await gateway.becomes(slow.id, 'APPLIED');
    expect(await fences()).toEqual([1, 2]);
    const contested = await apply({ auto_apply: false }, { word: 'contested' });
    await gateway.becomes(contested.id, 'PLANNED');
    const decide = ([one, decision]: readonly [RunGateway, string]) =>
      one.ask(`/v1/runs/${contested.id}/${decision}`, { method: 'POST' });
    const asked = [gateway, second].flatMap((one) => [[one, 'confirm'] as const, [one, 'discard'] as const]);
    const codes = (await Promise.all(asked.map(decide))).map(({ status }) => status);
    expect(codes.toSorted((a, b) => a - b)).toEqual([200, 409, 409, 409]);
    const end = await gateway.becomes(contested.id, 'APPLIED', 'DISCARDED');
    expect(applied(folder)).toHaveLength(end.status === 'APPLIED' ? 3 : 2);
  });

  it('changes nothing when it is discarded or canceled, and then the next run starts', async () => {
    const { gateway, folder, apply } = await newPlanned();
    const [one, two, three] = [await apply({ auto_apply: false }), await apply({ auto_apply: false }), await apply({})];
    await gateway.becomes(one.id, 'PLANNED');
    expect(await gateway.made(`/v1/runs/${one.id}/discard`)).toMatchObject({ status: 'DISCARDED', confirm_by: null });
    await gateway.becomes(two.id, 'PLANNED');
    expect(await gateway.made(`/v1/runs/${two.id}/cancel`)).toMatchObject({ status: 'CANCELED' });
    for (const order of ['confirm', 'discard', 'destroy'])
      expect((await gateway.ask(`/v1/runs/${one.id}/${order}`, { method: 'POST' })).status).toBe(409);
    await gateway.becomes(three.id, 'APPLIED');
    expect(applied(folder)).toHaveLength(1);
  });

  it('fails as PLAN_STALE when the state or the access identity changed after the plan', async () => {
    const { place, gateway, cluster, folder, apply } = await newPlanned();
    const earlier = await apply({});
    await gateway.becomes(earlier.id, 'APPLIED');
    const first = await apply({ auto_apply: false }, { word: 'second' });
    await gateway.becomes(first.id, 'PLANNED');
    // Clearing the folder of the earlier run stores a state that the database lacks.
    await eventually(async () => !existsSync(gateway.folderOf(earlier.id)));
    expect(actions(await planOf(gateway, first))).toEqual([
      ['terraform_data.file[0]', 'replace'],
      ['terraform_data.words', 'update'],
    ]);
    // As a run that was lost with its machine does when the machine is back: another state is stored.
    await place.sql`
      delete from stack_states where installation_id in (select installation_id from runs where cluster_id = ${uuidOf(cluster.id)})`;
    await gateway.made(`/v1/runs/${first.id}/confirm`);
    expect(await gateway.becomes(first.id, 'FAILED')).toMatchObject({ failure_code: 'PLAN_STALE' });
    const second = await apply({ auto_apply: false }, { word: 'third' });
    await gateway.becomes(second.id, 'PLANNED');
    const { body } = await gateway.ask(`/v1/clusters/${cluster.id}/access-identity/rotate`, { method: 'POST' });
    place.server.authorize(body.access_identity.public_key);
    await gateway.made(`/v1/runs/${second.id}/confirm`);
    expect(await gateway.becomes(second.id, 'FAILED')).toMatchObject({
      failure_code: 'PLAN_STALE',
      failure_message: expect.stringContaining('access identity of the cluster changed'),
    });
    expect(applied(folder)).toHaveLength(1);
  });
});

describe('a run that only plans', () => {
  it('ends after the plan, which stays readable, and changes nothing', async () => {
    const { gateway, folder, apply } = await newPlanned();
    const run = await apply({ plan_only: true });
    expect(await gateway.becomes(run.id, 'PLANNED_AND_FINISHED')).toMatchObject({ plan_only: true, auto_apply: false });
    expect(actions(await planOf(gateway, run))).toHaveLength(3);
    expect(applied(folder)).toEqual([]);
    expect((await gateway.ask(`/v1/runs/${run.id}/confirm`, { method: 'POST' })).status).toBe(409);
    const both = await gateway.ask('/v1/stacks/planned/apply', {
      method: 'POST',
      body: { cluster_id: run.cluster_id, plan_only: true, auto_apply: true },
    });
    expect([both.status, both.body.error.details[0].field]).toEqual([400, 'auto_apply']);
    const auto = await apply({});
    expect((await gateway.ask(`/v1/runs/${auto.id}/plan`)).status).toBe(404);
    await gateway.becomes(auto.id, 'APPLIED');
  });
});

describe('headgate', () => {
  it('applies with --confirm, shows the plan, and confirms it', async () => {
    const { gateway, cluster, folder } = await newPlanned();
    mkdirSync(folder);
    const headgate = (...args: string[]) => say(args, { url: gateway.url, key: givenKey });
    const input = `folder=${folder}`;
    const apply = ['stacks', 'apply', 'planned', '--cluster', cluster.id, '--input', input, '--wait'];
    const waiting = await headgate(...apply, '--confirm');
    expect(waiting).toMatchObject({ code: 0 });
    expect(waiting.stdout).toContain('PLANNED; plan: 3 to add, 0 to change, 0 to remove; "headgate runs plan run_');
    const id = /run_[0-9a-f]{32}/.exec(waiting.stdout)?.[0] ?? '';
    const { stdout } = await headgate('runs', 'plan', id);
    expect(stdout).toContain('  + terraform_data.words (create)');
    expect(stdout).toContain('      input: (sensitive) -> (sensitive)');
    expect((await headgate('runs', 'confirm', id, '--wait')).stdout).toContain(`${id}: APPLIED; 3 added`);
    expect((await headgate(...apply, '--plan-only')).stdout).toContain(
      'PLANNED_AND_FINISHED; plan: 0 to add, 1 to change',
    );
    const discarded = /run_[0-9a-f]{32}/.exec((await headgate(...apply, '--confirm')).stdout)?.[0] ?? '';
    expect((await headgate('runs', 'discard', discarded)).stdout).toContain('DISCARDED');
    expect(applied(folder)).toHaveLength(1);
  });
});
