import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { rowsOf } from '#test/terraform/printed.ts';
import { type RunGateway, usePlace } from '#test/terraform/run-gateway.ts';
import { waitingStack } from '#test/terraform/waiting-stacks.ts';
import { runImage } from './images.ts';
import { useRunFloor } from './run-floor.ts';

const floor = useRunFloor();
const newPlace = usePlace();
const rows = Array.from({ length: 400 }, (_, index) => index + 1);
let redis: TestRedis;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());

let count = 0;
/** A cluster of the two nodes, which it may enter. */
async function newCluster(gateway: RunGateway): Promise<Body> {
  const { id } = await gateway.made('/v1/organizations', { name: `Organization ${(count += 1)}` });
  const nodes = floor.nodes.slice(0, 2).map((node) => ({ ...node, private_address: node.address }));
  const cluster = await gateway.made('/v1/clusters', { name: `docker-${count}`, organization_id: id, nodes });
  floor.authorize(cluster.access_identity.public_key);
  return cluster;
}

const open = (folder: string): void => writeFileSync(join(folder, 'go'), '');

/** Writes a file onto every node, and takes it away. */
const everyNode = `
variable "folder" { type = string }
variable "nodes" {
  type = list(object({ name = string, private_address = string, ssh_port = number, ssh_user = string, host_key = string }))
}
resource "terraform_data" "software" {
  count = length(var.nodes)
  input = { node = var.nodes[count.index], folder = var.folder }
  connection {
    type        = "ssh"
    host        = self.input.node.private_address
    port        = self.input.node.ssh_port
    user        = self.input.node.ssh_user
    host_key    = self.input.node.host_key
    private_key = file("\${path.root}/.platform/id")
    agent       = false
    timeout     = "20s"
  }
  provisioner "remote-exec" {
    inline = ["touch '\${self.input.folder}/\${self.input.node.name}'"]
  }
  provisioner "remote-exec" {
    when   = destroy
    inline = ["rm '\${self.input.folder}/\${self.input.node.name}'"]
  }
}
output "folder" { value = var.folder }
`;

/** A program on the machine of the run, whose output is in its log. */
const programStack = (...lines: readonly string[]): string => `
resource "terraform_data" "program" {
  provisioner "local-exec" {
    command = <<-EOT
      ${lines.join('\n      ')}
    EOT
  }
}
`;

/** Runs on until it is ended, and needs no node. */
const endless = programStack('echo "it ru""ns."', 'while true; do sleep 0.2; done');

async function begin(gateway: RunGateway, name: string, main: string, inputs: object = {}): Promise<Body> {
  const cluster = await newCluster(gateway);
  const uploaded = await gateway.upload(name, main);
  if (uploaded.status >= 300) throw new Error(JSON.stringify(uploaded.body));
  return gateway.apply(name, cluster.id, inputs);
}

describe('a rejected run in containers', () => {
  it('returns an error that names the image when no host has it and no other runner exists', async () => {
    const place = await newPlace();
    const env = {
      ...floor.env,
      HEADGATE_RUNS_IMAGE: 'headgate-test/missing:1',
      HEADGATE_TERRAFORM_BIN: '/nonexistent/terraform',
    };
    const gateway = await place.startHere({ home: floor.home(), env });
    const cluster = await newCluster(gateway);
    const answer = await eventually(async () => {
      const found = await gateway.ask('/v1/stacks/scheduler/apply', { body: { cluster_id: cluster.id } });
      return found.body.error?.message.includes('is not allowed') === true ? found : null;
    });
    expect([answer.status, answer.body.error.code]).toEqual([503, 'RUNNER_UNAVAILABLE']);
    expect(answer.body.error.message).toContain('one: the image headgate-test/missing:1 cannot be used');
    expect(answer.body.error.message).toContain('HEADGATE_TERRAFORM_BIN is /nonexistent/terraform');
  });
});

describe('a stack applied in containers', () => {
  it('installs its software on two nodes, removes it, and leaves nothing on the host', async () => {
    const place = await newPlace();
    const gateway = await place.startHere({ home: floor.home(), env: floor.env });
    const folder = floor.folder();
    const run = await begin(gateway, 'every', everyNode, { folder });
    const applied = await gateway.becomes(run.id, 'APPLIED');
    expect(applied.outputs.folder.value).toBe(folder);
    expect(['n0', 'n1'].map((name) => existsSync(join(folder, name)))).toEqual([true, true]);
    const destroying = await gateway.made(`/v1/runs/${run.id}/destroy`);
    await gateway.becomes(destroying.id, 'DESTROYED');
    expect(['n0', 'n1'].map((name) => existsSync(join(folder, name)))).toEqual([false, false]);
    await floor.leavesNothing();
    expect(gateway.output).toContain('this host accepts runs');
    expect(floor.refused).toEqual([]);
  });

  it('shows its plan, waits without anything on the host, and applies the plan, also that of a destroy', async () => {
    const place = await newPlace();
    const gateway = await place.startHere({ home: floor.home(), env: floor.env });
    const folder = floor.folder();
    const cluster = await newCluster(gateway);
    await gateway.upload('planned', everyNode);
    const body = { cluster_id: cluster.id, inputs: { folder }, auto_apply: false };
    const run = await gateway.made('/v1/stacks/planned/apply', body);
    await gateway.becomes(run.id, 'PLANNED');
    const plan = await gateway.ask(`/v1/runs/${run.id}/plan`);
    expect(plan.body.resources.map(({ address, action }: Body) => [address, action])).toEqual([
      ['terraform_data.software[0]', 'create'],
      ['terraform_data.software[1]', 'create'],
    ]);
    // While the containers of the plan are removed, nobody applies it.
    await gateway.made(`/v1/runs/${run.id}/confirm`);
    await gateway.becomes(run.id, 'APPLIED');
    expect(['n0', 'n1'].map((name) => existsSync(join(folder, name)))).toEqual([true, true]);
    const check = await gateway.made(`/v1/runs/${run.id}/drift-check`);
    await gateway.becomes(check.id, 'PLANNED_AND_FINISHED');
    expect(await gateway.run(run.id)).toMatchObject({ status: 'APPLIED', drift: { status: 'none' } });
    const removal = await gateway.made(`/v1/runs/${run.id}/destroy`, { auto_apply: false });
    await gateway.becomes(removal.id, 'PLANNED');
    await floor.leavesNothing();
    expect(['n0', 'n1'].map((name) => existsSync(join(folder, name)))).toEqual([true, true]);
    await gateway.made(`/v1/runs/${removal.id}/confirm`);
    await gateway.becomes(removal.id, 'DESTROYED');
    expect(['n0', 'n1'].map((name) => existsSync(join(folder, name)))).toEqual([false, false]);
    const second = await gateway.made('/v1/stacks/planned/apply', body);
    await gateway.becomes(second.id, 'PLANNED');
    await floor.leavesNothing();
    expect(floor.refused).toEqual([]);
  });

  it('can reach no secret, no Docker socket, no other host and no writable folder', async () => {
    const place = await newPlace();
    const secret = 'a-secret-of-the-gateway-0001';
    const env = { ...floor.env, HEADGATE_BOOTSTRAP_PASSWORD: secret };
    const gateway = await place.start({ home: floor.home(), env });
    const [node, , stranger] = floor.nodes;
    const reaches = (address: string): string =>
      `sleep 2 | nc -w 30 ${address} 22 2>/dev/null | grep -q SSH- && echo "reach""es ${address}."`;
    const curious = programStack(
      'env; cat /proc/*/environ 2>/dev/null | base64 -w0; echo; id -u; grep -E "CapEff|NoNewPrivs|Seccomp:" /proc/self/status',
      'for path in /var/run/docker.sock /run/docker.sock /var/run/containerd; do [ -e $path ] && echo "sock""et $path."; done; true',
      ...['/', '/etc', '/usr', '/work', '/dev', '/proc/sys/kernel'].map(
        (path) => `(touch ${path}/x) 2>/dev/null && echo "wro""te ${path}."`,
      ),
      'printf "#!/bin/sh\\necho $((6 * 7)) by a program.\\n" >/tmp/x && chmod +x /tmp/x && /tmp/x',
      reaches(node.address),
      reaches(stranger.address),
      // Docker tells names of containers to whoever may ask it.
      `nslookup stranger 127.0.0.11 2>&1 | tee /tmp/names | grep -qF '${stranger.address}' && echo "reach""es names."; echo "na""mes: $(cat /tmp/names)"`,
      reaches('169.254.169.254'),
      'echo "it wa""its."',
      'until [ -e /work/run/m/go ]; do sleep 0.2; done',
    );
    const run = await begin(gateway, 'curious', curious);
    await gateway.prints(run.id, 'it waits.');
    const containers = await floor.runContainers();
    const phases = containers.map(({ Labels: marks }) => String(marks['headgate.phase']));
    expect(phases.toSorted()).toEqual(['apply', 'init-1', 'plan', 'work']);
    const apply = containers.find(({ Labels: marks }) => marks['headgate.phase'] === 'apply');
    const { HostConfig: host, Config: config, Mounts: mounts } = await floor.inspect(apply.Id);
    expect(host).toMatchObject({
      Privileged: false,
      ReadonlyRootfs: true,
      CapDrop: ['ALL'],
      SecurityOpt: ['no-new-privileges'],
      PidsLimit: 512,
      Memory: 268_435_456,
      MemorySwap: 268_435_456,
      NanoCpus: 1_000_000_000,
      Init: true,
      Binds: null,
      Tmpfs: { '/tmp': 'rw,noexec,nosuid,nodev,size=64m,mode=1777' },
    });
    expect(host.CapAdd).toBe(null);
    expect([config.User, config.Image]).toEqual(['65532:65532', runImage]);
    expect(mounts.map(({ Type: type, Destination: path }: Body) => [type, path])).toEqual([['volume', '/work']]);

    const log = (await gateway.log(run.id)).map(({ message }) => message).join('\n');
    expect(log).toContain('65532');
    expect(log).toMatch(/CapEff:\s*0000000000000000/);
    expect(log).toMatch(/NoNewPrivs:\s*1/);
    expect(log).toMatch(/Seccomp:\s*2/);
    expect(log).toContain('TF_IN_AUTOMATION=1');
    const environments = [...log.matchAll(/[A-Za-z0-9+/=]{200,}/g)].map(([text]) =>
      Buffer.from(text, 'base64').toString(),
    );
    expect(environments.join()).toContain('TF_IN_AUTOMATION');
    for (const text of [log, ...environments]) {
      for (const gone of ['HEADGATE', 'DATABASE_URL', secret, place.databaseUrl]) expect(text).not.toContain(gone);
    }
    expect(log).not.toContain('socket /');
    expect([...log.matchAll(/wrote (\S+)\./g)].map(([, path]) => path)).toEqual([]);
    expect(log).not.toContain('42 by a program.');
    expect([...log.matchAll(/reaches (\S+)\./g)].map(([, address]) => address)).toEqual([node.address]);
    await gateway.made(`/v1/runs/${run.id}/cancel`);
    await gateway.becomes(run.id, 'CANCELED');
    await floor.leavesNothing();
  });
});

describe('a run above its limits', () => {
  it('fails with the reason above its memory limit, and when it starts too many processes', async () => {
    const place = await newPlace();
    const env = { ...floor.env, HEADGATE_RUNS_AT_ONCE: '3', HEADGATE_RUNS_MEMORY_MIB: '160' };
    const own = Object.fromEntries(Object.entries(env).filter(([name]) => name !== 'HEADGATE_RUNS_NETWORK'));
    const gateway = await place.startHere({ home: floor.home(), env: own });
    const hungry = await begin(gateway, 'hungry', programStack('tail /dev/zero'));
    const bomb = programStack(
      'for i in $(seq 1 700); do sleep 60 >/dev/null 2>&1 & done',
      'echo "all 7""00 were forked."',
    );
    const forking = await begin(gateway, 'forking', bomb);
    const failed = await gateway.becomes(hungry.id, 'FAILED');
    expect(failed.failure_code).toBe('APPLY_FAILED');
    expect(failed.failure_message).toContain('it used more than 160 MiB of memory, the limit for a run');
    await gateway.becomes(forking.id, 'FAILED');
    const log = JSON.stringify(await gateway.log(forking.id));
    expect(log).toContain("can't fork");
    expect(log).not.toContain('all 700 were forked.');
    await floor.leavesNothing();
    expect(floor.refused).toEqual([]);
  });
});

describe('a cancel during apply', () => {
  it('stops the processes on the node, and keeps the created resources for a destroy', async () => {
    const place = await newPlace();
    const gateway = await place.startHere({ home: floor.home(), env: floor.env });
    const folder = floor.folder();
    const run = await begin(gateway, 'waiting', waitingStack(), { folder });
    await gateway.prints(run.id, 'row 200.');
    await gateway.made(`/v1/runs/${run.id}/cancel`);
    await gateway.becomes(run.id, 'CANCELED');
    const destroying = await gateway.made(`/v1/runs/${run.id}/destroy`);
    await gateway.becomes(destroying.id, 'DESTROYED');
    expect(existsSync(join(folder, 'software'))).toBe(false);
    await floor.leavesNothing();
  });
});

describe('kill -9 of the gateway during apply', () => {
  it('leaves a run that another gateway ends APPLIED, with its complete log', async () => {
    const place = await newPlace();
    const first = await place.start({ home: floor.home(), env: floor.env });
    const folder = floor.folder();
    const run = await begin(first, 'waiting', waitingStack(), { folder });
    await first.prints(run.id, 'row 150.');
    await first.kill();
    // It goes on while nobody looks. The second has a folder of its own: the place is the Docker engine.
    open(folder);
    const second = await place.startHere({ home: floor.home(), env: floor.env });
    await place.lapse();
    await second.becomes(run.id, 'APPLIED');
    expect(rowsOf(await second.log(run.id))).toEqual(rows);
    expect(readFileSync(join(folder, 'times'), 'utf8')).toBe('once\n');
    await floor.leavesNothing();
  });
});

describe('two gateways and two hosts', () => {
  it('share runs evenly, run none twice, and fail the runs of a dead host, whose state is kept', async () => {
    const place = await newPlace();
    const env = { ...floor.env, REDIS_URL: redis.url, HEADGATE_RUNS_AT_ONCE: '2' };
    const first = await place.startHere({ home: floor.home(2), env });
    await place.startHere({ home: floor.home(2), env });
    const started: Body[] = [];
    for (let index = 0; index < 4; index += 1) started.push(await begin(first, 'endless', endless));
    for (const { id } of started) await first.prints(id, 'it runs.');
    const runsOn = async (host: 0 | 1): Promise<readonly string[]> => {
      const containers = await floor.runContainers(floor.dockers[host]);
      return containers
        .filter(({ Labels: marks }) => marks['headgate.phase'] === 'apply')
        .map(({ Labels: marks }) => `run_${marks['headgate.run'].replaceAll('-', '')}`);
    };
    const [onFirst, onSecond] = [await runsOn(0), await runsOn(1)];
    expect([onFirst.length, onSecond.length]).toEqual([2, 2]);
    expect([...onFirst, ...onSecond].toSorted()).toEqual(started.map(({ id }) => String(id)).toSorted());

    await floor.dockers[1].kill();
    for (const id of onFirst) {
      await first.made(`/v1/runs/${id}/cancel`);
      await first.becomes(id, 'CANCELED');
    }
    for (const id of onSecond) expect((await first.run(id)).status).toBe('APPLYING');
    await place.lapse(16);
    // A gateway that starts looks at once for what was given up, and others within a minute.
    const third = await place.startHere({ home: floor.home(2), env });
    for (const id of onSecond) {
      expect(await third.becomes(id, 'FAILED')).toMatchObject({
        failure_code: 'INTERRUPTED',
        failure_message: 'its machine stopped responding; the resources that the run created until then are kept',
      });
    }
    const states = async (): Promise<number> =>
      (await place.sql`select distinct installation_id from stack_states where resources > 0`).length;
    const before = await states();
    await floor.dockers[1].start();
    await place.startHere({ home: floor.home(2), env });
    // The knowledge of its containers is on record then.
    await floor.leavesNothing(floor.dockers[1]);
    expect(await states()).toBe(before + onSecond.length);
    await floor.leavesNothing();
  });
});
