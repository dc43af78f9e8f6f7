import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { runCli } from '#test/cli/run-cli.ts';
import { isAlive } from '#test/programs/gateway-process.ts';
import { freePort } from '#test/free-port.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { rowsOf } from '#test/terraform/printed.ts';
import { followLog, openSite, type Place, type RunGateway, useSites, usePlace } from '#test/terraform/run-gateway.ts';
import { heldInInit, heldInPlan, waitingStack } from '#test/terraform/waiting-stacks.ts';
import { SshServer } from '#test/terraform/terraform.ts';

const newPlace = usePlace();
const newSite = useSites();
const rows = Array.from({ length: 400 }, (_, index) => index + 1);
const seqs = (log: readonly Body[]): number[] => log.map(({ seq }) => seq);
const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1);

const open = (folder: string): void => {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'go'), '');
};

/** Returns how many resources the newest state has of what a run was applied to. */
async function resourcesOf({ sql }: Place, runId: string): Promise<number | undefined> {
  const [newest] = await sql<{ resources: number }[]>`
    select s.resources from stack_states s join runs r using (installation_id)
    where r.id = ${runId.replace('run_', '')}::uuid order by s.serial desc limit 1`;
  return newest?.resources;
}

/** A node of a test's own, for a test that counts its programs or ends it. */
async function newNode(): Promise<SshServer> {
  const server = await SshServer.start();
  onTestFinished(() => server.close());
  return server;
}

/** The private key as a text that nothing else has: a line of its middle. */
function secretOf(gateway: RunGateway, runId: string): string {
  const key = readFileSync(join(gateway.folderOf(runId), 'work/m/.platform/id'), 'utf8');
  const line = key.split('\n')[2] ?? '';
  if (line.length < 20) throw new Error('the run has no key');
  return line;
}

function environments(): string {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'latin1') + readFileSync(`/proc/${pid}/cmdline`, 'latin1');
      } catch {
        return '';
      }
    })
    .join('\n');
}

describe('a rejected apply', () => {
  it('returns all problems at once, or the missing right', async () => {
    const { gateway, cluster, organization } = await newSite();
    const { organization: other } = await newSite();
    const { key } = organization;
    const body = { cluster_id: cluster.id, node: 'n7', inputs: { slots: 'many', colour: 'red', size: 1 } };
    const wrong = await gateway.ask('/v1/stacks/scheduler/apply', { body, key });
    expect([wrong.status, wrong.body.error.code]).toEqual([400, 'VALIDATION_ERROR']);
    const details: Body[] = wrong.body.error.details;
    expect(details.map(({ field }): string => field).toSorted()).toEqual([
      'inputs.colour',
      'inputs.size',
      'inputs.slots',
      'node',
    ]);

    const special = await gateway.upload('special', 'output "x" {\n  value = 1\n}\n', {
      'manifest.yaml': 'name: special\napplicable_profiles: [h100-8x]\n',
    });
    expect(special.status).toBe(201);
    const unfit = await gateway.ask('/v1/stacks/special/apply', { body: { cluster_id: cluster.id } });
    expect([unfit.status, unfit.body.error.details[0].message]).toEqual([400, expect.stringContaining('h100-8x')]);

    const plain = { cluster_id: cluster.id };
    const theirs = await gateway.ask('/v1/stacks/scheduler/apply', { body: plain, key: other.key });
    expect(theirs.status).toBe(404);
    const { body: app } = await gateway.ask('/v1/keys', { body: { name: 'app', scope: 'inference' }, key });
    expect((await gateway.ask('/v1/stacks/scheduler/apply', { body: plain, key: app.secret })).status).toBe(403);

    const asked = await gateway.ask(`/v1/runs?cluster_id=${cluster.id}`);
    expect(asked.body.pagination.total).toBe(0);
  });
});

describe('a stack applied over SSH', () => {
  it('installs its software, logs each line over a connection that is cut, and removes it', async () => {
    const { place, gateway, cluster } = await newSite();
    const folder = place.folder();
    const answer = await gateway.ask('/v1/stacks/scheduler/apply', {
      body: { cluster_id: cluster.id, inputs: { folder, slots: 1 } },
    });
    expect([answer.status, answer.body.status], JSON.stringify(answer.body)).toEqual([202, 'PENDING']);
    const first = await followLog(gateway, answer.body.id, { enough: 3 });
    const rest = await followLog(gateway, answer.body.id, { lastId: first.lines.at(-1).id });
    expect(rest.end).toEqual({ status: 'APPLIED', failure_code: null });
    const all = [...first.lines, ...rest.lines];
    expect(seqs(all)).toEqual(upTo(all.length));
    expect(all.map(({ id: event, ...line }) => (event === line.seq ? line : event))).toEqual(
      await gateway.log(answer.body.id),
    );
    const applied = await gateway.run(answer.body.id);
    expect(applied).toMatchObject({ status: 'APPLIED', log_lines: all.length, changes: { add: 1, remove: 0 } });
    expect(existsSync(join(folder, 'hgq'))).toBe(true);

    const destroying = await gateway.made(`/v1/runs/${applied.id}/destroy`);
    await gateway.becomes(destroying.id, 'DESTROYED');
    expect(await gateway.run(applied.id)).toMatchObject({ status: 'SUPERSEDED' });
    expect(await resourcesOf(place, applied.id)).toBe(0);
  });

  it('shows outputs, and keeps the private key out of logs, environments and rows', async () => {
    const place = await newPlace();
    const { gateway, cluster } = await openSite(place, await place.start());
    const leaky = `variable "ssh_private_key" { type = string }
resource "terraform_data" "leak" {
  provisioner "local-exec" {
    command = "cat .platform/id; base64 -w0 .platform/id; env"
  }
}
output "key" { value = var.ssh_private_key }
`;
    expect((await gateway.upload('leaky', waitingStack(leaky))).status).toBe(201);
    const folder = place.folder();
    const run = await gateway.apply('leaky', cluster.id, { folder });
    await gateway.prints(run.id, 'row 200.');
    const secret = secretOf(gateway, run.id);
    expect(environments()).not.toContain(secret);
    expect(environments()).not.toContain('PRIVATE KEY-----');
    expect(environments()).toContain('TF_IN_AUTOMATION');
    expect(JSON.stringify(cluster)).not.toContain('PRIVATE KEY-----');
    open(folder);
    const applied = await gateway.becomes(run.id, 'APPLIED');
    expect(applied.outputs.folder).toEqual({ sensitive: false, value: folder });
    expect(JSON.stringify(applied)).not.toContain(secret);
    const log = JSON.stringify(await gateway.log(run.id));
    expect(log).not.toContain(secret);
    expect(log).not.toContain(Buffer.from(secret).toString('base64').slice(4, 24));
    expect(log).toContain('TF_IN_AUTOMATION');
    for (const gone of ['HEADGATE', 'DATABASE_URL', place.databaseUrl]) expect(log).not.toContain(gone);
    expect(gateway.output).not.toContain(secret);
    const tables = await place.sql<{ name: string }[]>`
      select format('%I.%I', schemaname, tablename) as name from pg_tables
      where schemaname not in ('pg_catalog', 'information_schema')`;
    const wanted = [secret, Buffer.from(secret).toString('hex')];
    for (const { name } of tables) {
      const text = JSON.stringify(await place.sql.unsafe(`select t::text from ${name} t`));
      for (const one of wanted) expect(text.includes(one), name).toBe(false);
    }
    // It is taken away behind the end that others see.
    await eventually(() => Promise.resolve(!existsSync(gateway.folderOf(run.id))));
  });
});

describe('kill -9 of the gateway', () => {
  it('during init, plan and apply at once leaves three runs that end APPLIED, with complete logs', async () => {
    const place = await newPlace();
    // A server of this machine holds them.
    const env = { HEADGATE_RUNS_AT_ONCE: '3', HEADGATE_RUNS_EGRESS: 'machine' };
    const first = await place.start({ env });
    const stacks = {
      'in-init': heldInInit(place.gates, 'in-init'),
      'in-plan': heldInPlan(place.gates, 'in-plan'),
      'in-apply': waitingStack(),
    };
    const started: { run: Body; folder: string }[] = [];
    for (const [name, main] of Object.entries(stacks)) {
      const uploaded = await first.upload(name, main);
      expect([uploaded.status, uploaded.body.error]).toEqual([201, undefined]);
      const { cluster } = await openSite(place, first);
      const folder = place.folder();
      started.push({ run: await first.apply(name, cluster.id, { folder }), folder });
    }
    await place.gates.reached('/in-init.zip');
    await place.gates.reached('/in-plan');
    await first.prints(started[2]?.run.id ?? '', 'row 150.');
    await first.kill();
    // They go on while nobody looks.
    open(started[2]?.folder ?? '');
    place.gates.open('/in-plan');
    // It does not wait for the leases of the one before it.
    await place.lapse(-60);
    const second = await place.start({ home: first.home, env });
    place.gates.open('/in-init.zip');
    for (const { folder } of started) open(folder);
    for (const { run, folder } of started) {
      await second.becomes(run.id, 'APPLIED');
      const log = await second.log(run.id);
      expect([run.stack, rowsOf(log)]).toEqual([run.stack, rows]);
      expect(seqs(log)).toEqual(upTo(log.length));
      expect(readFileSync(join(folder, 'times'), 'utf8')).toBe('once\n');
    }
  });
});

describe('SIGTERM of the gateway', () => {
  it('leaves a run running, and clients that wait for it keep waiting', async () => {
    const place = await newPlace();
    const env = { PORT: String(await freePort()) };
    const first = await place.start({ env });
    const { cluster, organization } = await openSite(place, first);
    await first.upload('waiting', waitingStack());
    const folder = place.folder();
    const headgate = (...args: readonly string[]) =>
      runCli(args, { env: { HEADGATE_URL: first.url, HEADGATE_API_KEY: organization.key } });
    const applied = headgate(
      'runs',
      'apply',
      'waiting',
      '--cluster',
      cluster.name,
      '--input',
      `folder=${folder}`,
      '--wait',
    );
    const run = await eventually(async () => (await first.ask('/v1/runs')).body.data[0] ?? null);
    const followed = headgate('runs', 'logs', run.id, '-f', '--json');
    await first.prints(run.id, 'row 200.');
    const terraform = first.holderOf(run.id, 'apply');
    first.process.signal('SIGTERM');
    expect(await first.process.exited).toMatchObject({ code: 0 });
    expect(isAlive(terraform)).toBe(true);
    const second = await place.start({ home: first.home, env });
    open(folder);
    await second.becomes(run.id, 'APPLIED');
    expect(readFileSync(join(folder, 'times'), 'utf8')).toBe('once\n');
    expect(await applied).toMatchObject({ code: 0, stdout: expect.stringContaining(`${run.id}: APPLIED`) });
    const { code, stdout } = await followed;
    const lines: Body[] = stdout
      .trimEnd()
      .split('\n')
      .map((text) => JSON.parse(text));
    expect([code, lines]).toEqual([0, await second.log(run.id)]);
    expect(rowsOf(lines)).toEqual(rows);
  });
});

describe('kill -9 of Terraform during apply', () => {
  it('fails the run with its created resources recorded, and a destroy removes them', async () => {
    const { place, gateway, cluster } = await newSite();
    await gateway.upload('waiting', waitingStack());
    const folder = place.folder();
    const run = await gateway.apply('waiting', cluster.id, { folder });
    await gateway.prints(run.id, 'row 200.');
    gateway.killIn(run.id, 'apply', 'terraform');
    const failed = await gateway.becomes(run.id, 'FAILED');
    expect(failed.failure_message).toBe(
      'apply was killed by signal 9 (exit code 137), as the kernel does when memory runs out; the resources that it created until then are kept',
    );
    expect(existsSync(join(folder, 'software'))).toBe(true);
    const destroying = await gateway.made(`/v1/runs/${run.id}/destroy`);
    await gateway.becomes(destroying.id, 'DESTROYED');
    expect(existsSync(join(folder, 'software'))).toBe(false);
  });

  it('fails the run also before Terraform has written a state, and blocks nothing', async () => {
    const { gateway, cluster } = await newSite();
    const local = 'provisioner "local-exec" {\n    command = "echo begun.; exec sleep 600"\n  }';
    await gateway.upload('begun', `resource "terraform_data" "first" {\n  ${local}\n}\n`);
    const run = await gateway.apply('begun', cluster.id, {});
    await gateway.prints(run.id, 'begun.');
    gateway.killIn(run.id, 'apply', 'terraform');
    expect(await gateway.becomes(run.id, 'FAILED')).toMatchObject({
      failure_code: 'APPLY_FAILED',
      failure_message: expect.stringContaining('apply was killed by signal 9'),
    });
    const destroying = await gateway.made(`/v1/runs/${run.id}/destroy`);
    await gateway.becomes(destroying.id, 'DESTROYED');
  });
});

describe('a cancel during apply', () => {
  it('stops the processes on the node, and keeps the created resources for a destroy', async () => {
    const server = await newNode();
    const { place, gateway, organization } = await newSite();
    const cluster = await gateway.cluster(server, organization.id);
    await gateway.upload('waiting', waitingStack());
    const folder = place.folder();
    const run = await gateway.apply('waiting', cluster.id, { folder });
    await gateway.prints(run.id, 'row 200.');
    await eventually(async () => server.programs.includes('sleep'));
    await gateway.made(`/v1/runs/${run.id}/cancel`);
    await gateway.becomes(run.id, 'CANCELED');
    await eventually(async () => server.programs.length === 0);
    const destroying = await gateway.made(`/v1/runs/${run.id}/destroy`);
    await gateway.becomes(destroying.id, 'DESTROYED');
    expect(existsSync(join(folder, 'software'))).toBe(false);
  });
});

describe('deleting a cluster during apply', () => {
  it('ends its running and pending runs, and keeps the record of created resources', async () => {
    const { place, gateway, cluster } = await newSite();
    await gateway.upload('waiting', waitingStack());
    const run = await gateway.apply('waiting', cluster.id, { folder: place.folder() });
    const behind = await gateway.apply('scheduler', cluster.id, { folder: place.folder() });
    await gateway.prints(run.id, 'row 200.');
    await gateway.remove(`/v1/clusters/${cluster.id}`);
    expect(await gateway.becomes(run.id, 'FAILED')).toMatchObject({ failure_code: 'CLUSTER_GONE' });
    expect((await gateway.becomes(behind.id, 'CANCELED', 'FAILED')).started_at).toBe(null);
    expect(await resourcesOf(place, run.id)).toBe(2);
  });
});

/** A run that waits indefinitely; with more seconds for a machine that does not get that far within so many. */
async function printedWithin(
  place: Place,
  folder: string,
  seconds: number,
): Promise<{ gateway: RunGateway; run: Body }> {
  const gateway = await place.start({ env: { HEADGATE_RUN_SECONDS: String(seconds) } });
  const { cluster } = await openSite(place, gateway);
  await gateway.upload('waiting', waitingStack());
  const run = await gateway.apply('waiting', cluster.id, { folder });
  if (await gateway.prints(run.id, 'row 200.')) return { gateway, run };
  await gateway.kill();
  return printedWithin(place, folder, 2 * seconds);
}

describe('a node that dies during apply', () => {
  it('fails the run with a message', async () => {
    const server = await newNode();
    const { place, gateway, organization } = await newSite();
    const cluster = await gateway.cluster(server, organization.id);
    await gateway.upload('waiting', waitingStack());
    const run = await gateway.apply('waiting', cluster.id, { folder: place.folder() });
    await gateway.prints(run.id, 'row 200.');
    server.die();
    const failed = await gateway.becomes(run.id, 'FAILED');
    expect(failed.failure_code).toBe('APPLY_FAILED');
    expect(failed.failure_message).toMatch(
      /^remote-exec provisioner error \(main\.tf:\d+\): .*wait: remote command exited/,
    );
    // A missing part cannot be removed: the destroy says so, and its state is kept.
    const destroying = await gateway.made(`/v1/runs/${run.id}/destroy`);
    expect(await gateway.becomes(destroying.id, 'FAILED')).toMatchObject({
      failure_code: 'DESTROY_FAILED',
      failure_message: expect.stringMatching(
        /^remote-exec provisioner error \(main\.tf:\d+\): 127\.0\.0\.1, port \d+, refused the connection: start its SSH server/,
      ),
    });
  });

  it('ends the run by its time limit when it hangs silently', async () => {
    const place = await newPlace();
    const folder = place.folder();
    const { gateway, run } = await printedWithin(place, folder, 10);
    place.server.hang();
    const failed = await gateway.becomes(run.id, 'FAILED');
    expect([failed.failure_code, failed.failure_message]).toEqual([
      'TIMEOUT',
      'apply exceeded its time limit and was stopped',
    ]);
    place.server.goOn();
    const destroying = await gateway.made(`/v1/runs/${run.id}/destroy`);
    await gateway.becomes(destroying.id, 'DESTROYED');
    expect(existsSync(join(folder, 'software'))).toBe(false);
  });
});
