import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { type LocalReceiver, startLocalReceiver } from '#test/alerts/local-receiver.ts';
import { verified } from '#test/alerts/receiver.ts';
import { say } from '#test/cli/in-process.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { givenKey } from '#test/programs/gateway-process.ts';
import { type Place, type RunGateway, usePlace } from '#test/terraform/run-gateway.ts';
import { Mirror } from './provider/mirror.ts';

/** Drift checks of resources that somebody changed or deleted, with real Terraform and a provider of the test. */

const newPlace = usePlace();
const ends: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

const module = `
  terraform {
    required_providers {
      tiny = { source = "example/tiny" }
    }
  }
  variable "password" {
    default   = "correct-horse-battery"
    sensitive = true
  }
  resource "tiny_note" "changed" { text = "hello" }
  resource "tiny_note" "deleted" { text = "soon gone" }
  resource "tiny_note" "same" { text = "stays" }
  resource "tiny_note" "login" { text = var.password }
  resource "terraform_data" "copy" { input = tiny_note.changed.text }
  output "text" { value = tiny_note.changed.text }
`;
const outside = { hello: 'edited by hand', 'soon gone': null, 'correct-horse-battery': 'changed-horse-battery' };
/** The output of a `terraform_data` has lost the mark of its input. */
const passed = `
  terraform {
    required_providers {
      tiny = { source = "example/tiny" }
    }
  }
  resource "terraform_data" "made" { input = sensitive("made-horse-battery") }
  resource "tiny_note" "passed" { text = terraform_data.made.output }
  resource "tiny_note" "open" { text = "plain" }
`;
const empty = 'variable "nothing" { default = 1 }\n';

interface DriftSite<Gateway extends RunGateway = RunGateway> {
  readonly place: Place;
  readonly gateway: Gateway;
  readonly mirror: Mirror;
  readonly receiver: LocalReceiver;
  readonly clusterId: string;
  readonly env: Env;
  /** Key of an administrator of the organization. */
  readonly key: string;
  /** Data of the events of a type. */
  readonly events: (type: string) => readonly Body[];
}

type Env = Readonly<Record<string, string>>;

/** @param start a gateway in this process, or one that may be killed */
async function newSite<Gateway extends RunGateway>(
  start: (place: Place, env: Env) => Promise<Gateway>,
): Promise<DriftSite<Gateway>> {
  const mirror = new Mirror();
  ends.push(() => mirror.close());
  await mirror.packed('1.0.0');
  const receiver = await startLocalReceiver();
  ends.push(() => receiver.close());
  const place = await newPlace();
  const env = { HEADGATE_PROVIDER_MIRROR: mirror.folder, HEADGATE_WEBHOOK_HOSTS: receiver.host };
  const gateway = await start(place, env);
  const { id: organization } = await gateway.made('/v1/organizations', { name: 'Organization' });
  const created = { name: 'admin', scope: 'management', organization_id: organization };
  const { secret: key } = await gateway.made('/v1/keys', created);
  const { secret } = (await gateway.ask('/v1/webhooks', { body: { url: receiver.url }, key })).body;
  await gateway.upload('notes', module);
  await gateway.upload('empty', empty);
  const { id: clusterId } = await gateway.cluster(place.server, organization);
  const events = (type: string): readonly Body[] =>
    receiver.got
      .map((got): Body => verified(secret, got))
      .filter((event) => event.type === type)
      .map(({ data }) => data);
  return { place, gateway, mirror, receiver, clusterId, env, key, events };
}

const here = (place: Place, env: Env): Promise<RunGateway> => place.startHere({ env });
const applied = async ({ gateway, clusterId }: DriftSite, stack = 'notes'): Promise<Body> =>
  gateway.becomes((await gateway.apply(stack, clusterId, {})).id, 'APPLIED');
const checked = async (gateway: RunGateway, { id }: Body): Promise<Body> =>
  gateway.becomes((await gateway.made(`/v1/runs/${id}/drift-check`)).id, 'PLANNED_AND_FINISHED');
const planOf = async (gateway: RunGateway, { id }: Body): Promise<Body> =>
  (await gateway.ask(`/v1/runs/${id}/plan`)).body;

/** Returns what Terraform itself reports as drift, for the same module and the same changes. */
function driftOfTerraform(mirror: Mirror): Body[] {
  const folder = mkdtempSync(join(tmpdir(), 'headgate-drift-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'main.tf'), module);
  const settings = `provider_installation {\n  filesystem_mirror {\n    path = "${mirror.folder}"\n    include = ["*/*/*"]\n  }\n}\n`;
  writeFileSync(join(folder, 'rc'), settings);
  const env = { ...process.env, TF_CLI_CONFIG_FILE: join(folder, 'rc') };
  const terraform = (...args: string[]): string =>
    execFileSync('terraform', args, { cwd: folder, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  terraform('init', '-input=false');
  terraform('apply', '-auto-approve', '-input=false');
  mirror.outside(outside);
  terraform('plan', '-refresh-only', '-out=plan', '-input=false');
  return JSON.parse(terraform('show', '-json', 'plan')).resource_drift;
}

describe('a drift check', () => {
  it('shows what Terraform reports, without secrets, and changes nothing', async () => {
    const site = await newSite(here);
    const { gateway, mirror, key, events } = site;
    const run = await applied(site);
    const server = { url: gateway.url, key };
    const clean = await say(['runs', 'drift-check', run.id, '--wait'], server);
    expect([clean.code, clean.stdout]).toEqual([0, expect.stringContaining('no drift')]);
    expect(await gateway.run(run.id)).toMatchObject({ drift: { status: 'none', changed: 0, deleted: 0 } });
    const states = () => site.place.sql`select * from stack_states order by serial`;
    const before = [...(await states())];
    const drift = driftOfTerraform(mirror);
    const check = await checked(gateway, run);
    expect(check).toMatchObject({ drift_check_of: run.id, plan_only: true, plan: { add: 0, change: 2, remove: 1 } });
    const plan = await planOf(gateway, check);
    const shown = plan.resources.map(({ address, action }: Body) => [address, action]);
    expect(shown).toEqual(drift.map(({ address, change }) => [address, change.actions[0]]));
    const [changed, deleted, login] = ['changed', 'deleted', 'login'].map((name) =>
      plan.resources.find(({ address }: Body) => address === `tiny_note.${name}`),
    );
    const attribute = { name: 'text', sensitive: false, unknown: false };
    expect([changed?.attributes, deleted?.attributes, login?.attributes]).toEqual([
      [{ ...attribute, before: 'hello', after: 'edited by hand' }],
      [{ ...attribute, before: 'soon gone' }],
      [{ ...attribute, sensitive: true }],
    ]);
    const printed = await say(['runs', 'plan', check.id], server);
    expect(printed.stdout).toContain('text: "hello" -> "edited by hand"');
    expect(JSON.stringify([plan, printed, await gateway.log(check.id)])).not.toContain('horse-battery');
    expect([...(await states())]).toEqual(before);
    const now = await gateway.run(run.id);
    expect(now).toMatchObject({
      status: 'APPLIED',
      drift: { status: 'drifted', check_run_id: check.id, changed: 2, deleted: 1, checked_at: check.ended_at },
    });
    await checked(gateway, run);
    const told = { run_id: run.id, check_run_id: check.id, changed: 2, deleted: 1, stack: 'notes' };
    await expect.poll(() => events('run.drifted'), { timeout: 20_000 }).toMatchObject([told]);
    // The next apply restores what was applied, and the new run has not drifted.
    mirror.outside({});
    expect(await applied(site)).toMatchObject({ drift: null });
    expect(await gateway.run(run.id)).toMatchObject({ status: 'SUPERSEDED', drift: null });
    expect(events('run.drifted')).toHaveLength(1);
  });

  it('hides a value that Terraform marks as sensitive in a resource without drift', async () => {
    const site = await newSite(here);
    const { gateway, mirror } = site;
    await gateway.upload('passed', passed);
    const run = await applied(site, 'passed');
    mirror.outside({ 'made-horse-battery': 'edited by hand', plain: 'edited too' });
    const { resources } = await planOf(gateway, await checked(gateway, run));
    const attribute = { name: 'text', sensitive: false, unknown: false };
    expect(resources.map(({ attributes }: Body) => attributes)).toEqual([
      [{ ...attribute, before: 'plain', after: 'edited too' }],
      [{ ...attribute, before: '***', after: 'edited by hand' }],
    ]);
  });

  it('of a stack without resources finds no drift', async () => {
    const site = await newSite(here);
    const run = await applied(site, 'empty');
    await checked(site.gateway, run);
    expect(await site.gateway.run(run.id)).toMatchObject({ status: 'APPLIED', drift: { status: 'none' } });
  });

  it('continues after its gateway was killed, is notified once, and comes again by itself', async () => {
    const site = await newSite((own, settings) => own.start({ env: settings }));
    const { place, gateway, mirror, env, events } = site;
    const run = await applied(site);
    mirror.outside(outside);
    mirror.hold();
    const { id } = await gateway.made(`/v1/runs/${run.id}/drift-check`);
    await eventually(async () => (await gateway.run(id)).phase === 'plan');
    await gateway.kill();
    const second = await place.startHere({ home: gateway.home, env });
    mirror.release();
    expect(await second.becomes(id, 'PLANNED_AND_FINISHED')).toMatchObject({ plan: { change: 2, remove: 1 } });
    await expect.poll(() => events('run.drifted'), { timeout: 20_000 }).toMatchObject([{ check_run_id: id }]);
    await second.stop();
    await place.sql`update runs set drift_tried_at = drift_tried_at - interval '25 hours'`;
    const third = await place.startHere({ home: gateway.home, env });
    const regular = await eventually(async () => {
      const { body } = await third.ask('/v1/runs?drift_checks=true');
      return body.data.find(({ created_via: via }: Body) => via === 'drift') ?? null;
    });
    expect(await third.becomes(regular.id, 'PLANNED_AND_FINISHED')).toMatchObject({ created_by: null });
    await third.becomes((await third.made(`/v1/runs/${run.id}/destroy`)).id, 'DESTROYED');
    const refused = await third.ask(`/v1/runs/${run.id}/drift-check`, { method: 'POST', key: givenKey });
    expect([refused.status, refused.body.error.message]).toEqual([409, 'The run is SUPERSEDED.']);
    expect(events('run.drifted')).toHaveLength(1);
  });
});
