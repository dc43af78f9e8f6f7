import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { descendantsOf } from '#base/process-identity.ts';
import {
  askRunner,
  findRunner,
  type FoundRunner,
  type Run,
  type RunnerSearch,
  type RunSources,
} from '#core/runs/runs.ts';
import { createLocalRunner } from '#core/runs/runner/local-runner.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { runnerSearch, useRuns } from './support.ts';

/** Walls around a run on the gateway's own machine: modules try to get past them. */

const bench = useRuns();
const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** A server of this machine that counts who comes. */
async function listen(host = '127.0.0.1'): Promise<{ readonly port: number; readonly came: () => number }> {
  let count = 0;
  const server = createServer((socket) => {
    count += 1;
    socket.on('error', () => undefined);
    socket.end('hello from outside\n');
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  const address = server.address();
  return { port: typeof address === 'object' ? (address?.port ?? 0) : 0, came: () => count };
}

const command = (text: string): string =>
  `resource "terraform_data" "first" {}\nresource "terraform_data" "a" {\n depends_on = [terraform_data.first]\n provisioner "local-exec" {\n  interpreter = ["/bin/bash", "-c"]\n  command = ${JSON.stringify(text).replaceAll('${', () => '$${')}\n }\n}\n`;

/** Clusters with these nodes. */
function sourcesWith(nodes: readonly { readonly address: string; readonly port: number }[]): RunSources {
  return {
    ...bench.sources,
    async cluster(id) {
      const cluster = await bench.sources.cluster(id);
      const [like] = cluster?.nodes ?? [];
      if (cluster === null || like === undefined) return null;
      const made = nodes.map(({ address, port }, index) => ({ ...like, name: `n${index}`, address, ssh_port: port }));
      return { ...cluster, nodes: made };
    },
  };
}

const search = (more: Partial<RunnerSearch> = {}): RunnerSearch => ({
  ...runnerSearch,
  runsDir: bench.runsDir,
  ...more,
});
const found = async (more: Partial<RunnerSearch>): Promise<() => Promise<FoundRunner>> => {
  const runner = await findRunner(search(more));
  return () => Promise.resolve(runner);
};

async function applied(text: string, options: Parameters<typeof bench.gateway>[0] = {}) {
  const runs = bench.gateway(options);
  const run = await bench.apply(runs, bench.stack(command(text)));
  const end = await bench.ended(runs, run);
  return { run: end, said: (await bench.lines(runs, run)).map(({ message }) => message) };
}

/** More than a run has, in one process. */
const hog = 'head -c 900000000 /dev/zero | tail -c 900000000 | wc -c; test ${PIPESTATUS[1]} = 0';

const controlGroups = '/sys/fs/cgroup';
/** The groups of a run, of whichever hierarchies there are. */
const groupsOf = ({ id }: Pick<Run, 'id'>): string[] =>
  globSync(`${controlGroups}/**/headgate-runs/${id}`).filter((group) => existsSync(group));

/** How often the kernel has held a run back that wanted more of the cores. */
function throttledOf(run: Run): number {
  const stats = groupsOf(run).map((group) => join(group, 'cpu.stat'));
  const told = stats.filter((file) => existsSync(file)).map((file) => readFileSync(file, 'utf8'));
  return Math.max(0, ...told.map((text) => Number(/^nr_throttled (\d+)$/m.exec(text)?.[1] ?? 0)));
}

const ownAddress = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ internal, family }) => !internal && family === 'IPv4')?.address;

describe('the network of a run', () => {
  const tries = (host: string, port: number, name: string): string =>
    `(cat </dev/tcp/${host}/${port}) 2>/dev/null | sed 's/^/${name}: /'`;

  it('reaches the SSH servers of its nodes, and nothing else of the machine or beyond', async () => {
    const [ssh, named, store] = [await listen(), await listen(), await listen('0.0.0.0')];
    const nodes = [
      { address: '127.0.0.1', port: ssh.port },
      { address: 'localhost.localdomain', port: named.port },
      { address: '10.77.0.9', port: 22 },
    ];
    const ask = (authority: string): string =>
      `exec 3<>/dev/tcp/127.0.0.1/$(echo $http_proxy | sed 's/.*://'); printf 'CONNECT ${authority} HTTP/1.1\\r\\n\\r\\n' >&3; IFS= read -r line <&3; echo "${authority} $line"; exec 3>&-`;
    const { run, said } = await applied(
      [
        tries('127.0.0.1', ssh.port, 'ssh'),
        tries('127.0.0.1', store.port, 'store'),
        tries(ownAddress ?? '127.0.0.2', store.port, 'store'),
        tries('169.254.169.254', 80, 'cloud'),
        'cat /etc/hosts | grep localdomain | sed "s/ .*/ is the name/"',
        ask(`127.0.0.1:${ssh.port}`),
        ask(`127.0.0.1:${store.port}`),
        ask(`localhost:${store.port}`),
        ask(`${ownAddress ?? '127.0.0.2'}:${store.port}`),
        ask('169.254.169.254:80'),
        ask('93.184.215.14:443'),
        'echo over',
      ].join('\n'),
      { sources: sourcesWith(nodes) },
    );
    expect(run.failureMessage).toBeNull();
    const own = ownAddress ?? '127.0.0.2';
    expect(said).toContain('ssh: hello from outside');
    expect(said.filter((line) => line.startsWith('store:') || line.startsWith('cloud:'))).toEqual([]);
    expect(said).toContain('127.77.0.0 is the name');
    expect(said).toContain(`127.0.0.1:${ssh.port} HTTP/1.1 200 Connection established`);
    for (const closed of [`127.0.0.1:${store.port}`, `localhost:${store.port}`, `${own}:${store.port}`]) {
      expect(said).toContain(`${closed} HTTP/1.1 403 Forbidden`);
    }
    expect(said).toContain('169.254.169.254:80 HTTP/1.1 403 Forbidden');
    expect(said).toContain('93.184.215.14:443 HTTP/1.1 403 Forbidden');
    expect(store.came()).toBe(0);
    expect(said.filter((line) => line.startsWith('headgate: network:'))).toEqual([]);
  });

  it('logs once that a node does not answer', async () => {
    const gone = await listen();
    await new Promise((resolve) => servers.pop()?.close(resolve));
    const { said } = await applied(`${tries('127.0.0.1', gone.port, 'a')}; ${tries('127.0.0.1', gone.port, 'b')}`, {
      sources: sourcesWith([{ address: '127.0.0.1', port: gone.port }]),
    });
    const told = said.filter((line) => line.startsWith('headgate: 127.0.0.1'));
    expect(told).toEqual([`headgate: 127.0.0.1, port ${gone.port}, does not answer (ECONNREFUSED)`]);
  });

  it('is that of the machine with HEADGATE_RUNS_EGRESS=machine, and the log of the run says so', async () => {
    const store = await listen();
    const { said } = await applied(tries('127.0.0.1', store.port, 'store'), {
      findRunner: await found({ egress: 'machine' }),
    });
    expect(said).toContain('store: hello from outside');
    expect(said).toContain('headgate: network: machine (HEADGATE_RUNS_EGRESS=machine)');
  });
});

describe('a work folder', () => {
  it('does not lead the gateway through the links of a run', async () => {
    const victim = mkdtempSync('/tmp/headgate-victim-');
    writeFileSync(join(victim, 'plan'), "somebody else's");
    try {
      const { run } = await applied(`mv .platform p2; ln -s ${victim} .platform; mkdir -p a/b; ln -s ${victim} a/b/c`);
      expect(run).toMatchObject({ status: 'APPLIED' });
      await bench.leavesNothing();
      expect(readFileSync(join(victim, 'plan'), 'utf8')).toBe("somebody else's");
    } finally {
      rmSync(victim, { recursive: true });
    }
  });

  it('is removed as a whole, at any depth and with any permissions', async () => {
    const deep = "p=$(printf 'dddddddd/%.0s' {1..300}); mkdir -p $p; cd $p; mkdir -p $p; cd $p; touch x";
    const { run } = await applied(`(${deep}); mkdir closed; touch closed/x; chmod 0 closed`);
    expect(run.failureCode).not.toBe('APPLY_FAILED');
    await bench.leavesNothing();
    expect(existsSync(join(bench.runsDir, run.id))).toBe(false);
  });
});

describe('a run that exceeds its limits', () => {
  const small = 16 * 1_048_576;

  it('ends with LIMIT_EXCEEDED when it hides files in an unreadable folder', async () => {
    const { run } = await applied('mkdir hid; cd hid; chmod 0300 .; head -c 60000000 /dev/zero > big; sleep 900', {
      findRunner: await found({ diskBytes: small }),
    });
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'LIMIT_EXCEEDED' });
    expect(run.failureMessage).toMatch(/the size of .* is unknown/);
  });

  it('ends with LIMIT_EXCEEDED when it hides the sizes of files in a folder', async () => {
    const { run } = await applied('mkdir hid; head -c 60000000 /dev/zero > hid/big; chmod 0400 hid; sleep 900', {
      findRunner: await found({ diskBytes: small }),
    });
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'LIMIT_EXCEEDED' });
  });

  it('ends with LIMIT_EXCEEDED when it prints too much', async () => {
    const { run } = await applied('yes $(printf "x%.0s" {1..1500}) | head -n 20000; sleep 900', {
      findRunner: await found({ diskBytes: small }),
    });
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'LIMIT_EXCEEDED' });
    expect(run.failureMessage).toContain('printed more than 4 MiB');
  });

  it('ends with LIMIT_EXCEEDED when it uses too much disk, with its resources recorded', async () => {
    const { run } = await applied('head -c 400000000 /dev/zero > big; sleep 900');
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'LIMIT_EXCEEDED' });
    expect(run.failureMessage).toContain('256 MiB');
    expect(run.failureMessage).toContain('HEADGATE_RUNS_DISK_MIB');
    const [state] = await bench.db.sql`select resources from stack_states order by serial desc`;
    expect(state?.['resources']).toBeGreaterThanOrEqual(1);
  });

  it('ends with APPLY_FAILED when the kernel kills it for its memory, and names the limit', async () => {
    const { run } = await applied(hog);
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'APPLY_FAILED' });
    expect(run.failureMessage).toContain('it used more than 512 MiB of memory, the limit for a run');
    await bench.leavesNothing();
    await expect.poll(() => groupsOf(run)).toEqual([]);
  });

  it('ends with APPLY_FAILED at the memory limit of one process without control groups', async () => {
    const asked = await askRunner(search());
    if (asked.terraform === null) throw new Error(asked.problem ?? '');
    const user = runnerSearch.isRoot ? runnerSearch.user : null;
    const walls = { kind: 'bwrap', user, groups: null, notice: null } as const;
    const runner = createLocalRunner({ ...search(), ...walls, terraform: asked.terraform.path });
    const got: FoundRunner = { runner, terraform: asked.terraform, problem: null };
    const { run, said } = await applied(hog, { findRunner: () => Promise.resolve(got) });
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'APPLY_FAILED' });
    expect(said.join('\n')).toContain('exhausted');
  });

  it('gets no more processes than its limit, and leaves none', async () => {
    // Each lets go of the output: Terraform waits for whoever holds it.
    const { run, said } = await applied(
      `sh -c 'i=0; while [ $i -lt 900 ]; do sleep 600 >/dev/null 2>&1 </dev/null & i=$((i+1)); done; echo made all'`,
    );
    expect(said.join('\n')).toContain('Cannot fork');
    expect(said).not.toContain('made all');
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'APPLY_FAILED' });
    await bench.leavesNothing();
    await expect.poll(() => groupsOf(run)).toEqual([]);
  });

  it('gets only its share of the CPU', async () => {
    const runs = bench.gateway({ findRunner: await found({ milliCpus: 200 }) });
    const run = await bench.apply(runs, bench.stack(command('while :; do :; done & while :; do :; done')));
    await expect.poll(() => throttledOf(run)).toBeGreaterThan(0);
    await runs.cancel(run.id, systemAuthor);
    expect(await bench.ended(runs, run)).toMatchObject({ status: 'CANCELED' });
  });

  it('has small in-memory folders, and cannot write elsewhere', async () => {
    const full = (path: string): string => `head -c 80000000 /dev/zero > ${path} 2>/dev/null || echo "${path} is full"`;
    const { said } = await applied(
      [full('/tmp/x'), full('/dev/shm/x'), 'touch /x || echo closed', 'touch /dev/x || echo closed'].join('; '),
    );
    expect(said).toEqual(expect.arrayContaining(['/tmp/x is full', '/dev/shm/x is full']));
    expect(said.filter((line) => line === 'closed')).toHaveLength(2);
  });
});

describe('a keeper that is killed', () => {
  it('ends its phase, so that nothing continues unobserved', async () => {
    const runs = bench.gateway();
    const run = await bench.apply(runs, bench.stack(command('echo begun; sleep 900')));
    await bench.prints(runs, run, 'begun');
    const below = descendantsOf(holderOf(run));
    const keeper = below.find(({ program }) => program === 'node' || program === 'MainThread');
    const terraform = below.find(({ program }) => program === 'terraform' || program === 'tofu');
    if (keeper === undefined || terraform === undefined) throw new Error(JSON.stringify(below));
    process.kill(keeper.pid, 'SIGKILL');
    expect(await bench.ended(runs, run)).toMatchObject({ status: 'FAILED', failureCode: 'APPLY_FAILED' });
    await expect.poll(() => existsSync(`/proc/${terraform.pid}/exe`)).toBe(false);
  });

  const holderOf = ({ id }: Run): number =>
    Number(readFileSync(join(bench.runsDir, id, 'phase-apply.pid'), 'utf8').split(' ')[0]);
});

describe('the search for a runner', () => {
  it('describes the limits of runs, and creates no folder when it is only asked', async () => {
    const runsDir = join(bench.runsDir, '..', 'not-there');
    const asked = await askRunner(search({ runsDir }));
    expect(asked.walls?.sentence).toContain("bubblewrap; network: the cluster's nodes; memory: 512 MiB");
    expect(asked.walls?.sentence).toContain('disk: 256 MiB');
    expect(existsSync(runsDir)).toBe(false);
    const open = await askRunner(search({ runsDir, egress: 'machine' }));
    expect(open.walls?.sentence).toContain('network: machine');
  });

  it('removes the control groups of runs whose gateway and folder no longer exist', async () => {
    // Where a run of this machine has its groups, others would have theirs.
    const runs = bench.gateway({ findRunner: await found({}) });
    const run = await bench.apply(runs, bench.stack(command('echo begun; sleep 900')));
    await bench.prints(runs, run, 'begun');
    const parents = groupsOf(run).map((group) => dirname(group));
    await runs.cancel(run.id, systemAuthor);
    await bench.ended(runs, run);
    const [gone, young, kept] = [uuidv7(), uuidv7(), uuidv7()];
    expect(parents.length).toBeGreaterThan(0);
    mkdirSync(join(bench.runsDir, kept));
    for (const parent of parents) {
      for (const id of [gone, young, kept]) mkdirSync(join(parent, id));
      for (const id of [gone, kept]) utimesSync(join(parent, id), 1, 1);
    }
    const { runner } = await findRunner(search());
    expect(groupsOf({ id: gone })).toEqual([]);
    expect(groupsOf({ id: young })).toHaveLength(parents.length);
    expect(groupsOf({ id: kept })).toHaveLength(parents.length);
    for (const id of [young, kept]) await runner?.remove(id);
  });

  it('returns no runner when a required limit is not available', async () => {
    const { runner, problem } = await findRunner(search({ egress: 'machine', required: ['memory', 'network'] }));
    expect(runner).toBeNull();
    expect(problem).toContain('HEADGATE_RUNS_REQUIRE requires limited network');
  });
});
