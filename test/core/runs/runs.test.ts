import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { AppError } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';
import { descendantsOf } from '#base/process-identity.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { createClaims } from '#core/runs/lifecycle/claims.ts';
import type { FoundRunner, Run } from '#core/runs/runs.ts';
import { privateKey, useRuns } from './support.ts';

const bench = useRuns();

const nothing = (): Promise<FoundRunner> => Promise.resolve({ runner: null, terraform: null, problem: 'nothing' });

const slow = (seconds: number, more = ''): string => `
resource "terraform_data" "first" {
  input = "made"
}
resource "terraform_data" "second" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = "echo begun; for i in $(seq ${seconds * 10}); do sleep 0.1; done; echo done"
  }
}
${more}`;

/** Kills a program of a run's `apply`, and nothing else of it. */
function killIn({ runsDir }: { readonly runsDir: string }, runId: string, program: string): void {
  const [holder = ''] = readFileSync(`${runsDir}/${runId}/phase-apply.pid`, 'utf8').split(' ');
  const target = descendantsOf(Number(holder)).find((child) => child.program === program);
  if (target === undefined) throw new Error(`${program} does not run`);
  process.kill(target.pid, 'SIGKILL');
}

describe('a run that cannot succeed', () => {
  it('names the file and line of an error in the module', async () => {
    const runs = bench.gateway();
    const run = await bench.apply(runs, bench.stack('output "x" {\n  value = var.missing\n}\n'));
    const ended = await bench.ended(runs, run);
    expect(ended).toMatchObject({ status: 'FAILED', failureCode: 'PLAN_FAILED' });
    const lines = await bench.lines(runs, run);
    expect(lines.map(({ message }) => message).join('\n')).toContain('main.tf:2');
  });

  it('reports why apply failed, and keeps the resources created so far', async () => {
    const runs = bench.gateway();
    const main =
      'resource "terraform_data" "a" {}\nresource "terraform_data" "b" {\n depends_on = [terraform_data.a]\n provisioner "local-exec" {\n  command = "exit 3"\n }\n}\n';
    const run = await bench.apply(runs, bench.stack(main));
    expect(await bench.ended(runs, run)).toMatchObject({
      status: 'FAILED',
      failureCode: 'APPLY_FAILED',
      failureMessage: expect.stringContaining('local-exec provisioner error'),
    });
    const [state] = await bench.db.sql`select resources from stack_states`;
    expect(state).toEqual({ resources: 2 });
  });

  it('ignores a backend in the package, and fails with INIT_FAILED for one in an override file', async () => {
    const runs = bench.gateway();
    const main = 'terraform {\n backend "local" {\n  path = "/tmp/elsewhere.tfstate"\n }\n}\n';
    const mine = await bench.ended(runs, await bench.apply(runs, bench.stack(main)));
    expect(mine.status).toBe('APPLIED');
    const files = { '~zz_override.tf': 'terraform {\n backend "local" {\n  path = "/tmp/elsewhere.tfstate"\n }\n}\n' };
    const theirs = await bench.ended(runs, await bench.apply(runs, bench.stack('', { files })));
    expect(theirs).toMatchObject({ status: 'FAILED', failureCode: 'INIT_FAILED' });
    expect(theirs.failureMessage).toContain('backend');
  });

  it('fails with STATE_SAVE_FAILED when the module replaced its state by a link', async () => {
    const runs = bench.gateway();
    const main =
      'resource "terraform_data" "a" {\n provisioner "local-exec" {\n  command = "(sleep 1; rm -f terraform.tfstate; ln -s /etc/passwd terraform.tfstate) & sleep 0.1"\n }\n}\n';
    const run = await bench.ended(runs, await bench.apply(runs, bench.stack(main)));
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'STATE_SAVE_FAILED' });
    expect(await bench.db.sql`select 1 from stack_states`).toHaveLength(0);
  });

  it('fails with TIMEOUT when it takes too long, and keeps the resources created so far', async () => {
    const runs = bench.gateway({ phaseMs: 15_000 });
    const run = await bench.apply(runs, bench.stack(slow(600)));
    expect(await bench.ended(runs, run)).toMatchObject({ status: 'FAILED', failureCode: 'TIMEOUT' });
    const [state] = await bench.db.sql`select resources from stack_states`;
    expect(state).toEqual({ resources: 2 });
  });
});

describe('a run', () => {
  it('ends as APPLIED with outputs, changes and a log without secrets', async () => {
    const secret = randomBytes(12).toString('hex');
    const inputs = [
      { name: 'password', sensitive: true, default: null, ephemeral: false },
      { name: 'cluster_name', sensitive: false, default: null, ephemeral: false },
      { name: 'ssh_private_key', sensitive: true, default: null, ephemeral: false },
    ];
    const main = `
      variable "password" {}
      variable "cluster_name" {}
      variable "ssh_private_key" {}
      resource "terraform_data" "a" {
        input = var.cluster_name
        provisioner "local-exec" {
          command = "printf '\\\\033[31mred\\\\033[0m %s\\n' $PASSWORD; printf %s $PASSWORD | base64; echo \\"$KEY\\"; tr '\\\\000' ' ' </proc/self/environ"
          environment = { PASSWORD = var.password, KEY = var.ssh_private_key }
        }
      }
      output "web_port" { value = 8080 }
      output "plain" { value = "for \${var.cluster_name} \${var.password}" }
      output "hidden" {
        value     = var.password
        sensitive = true
      }`;
    const runs = bench.gateway();
    const run = await bench.apply(runs, bench.stack(main, { inputs }), { inputs: { password: secret } });
    const ended = await bench.ended(runs, run);
    expect(ended).toMatchObject({
      status: 'APPLIED',
      changes: { operation: 'apply', add: 1, change: 0, remove: 0 },
      outputs: {
        plain: { sensitive: false, value: 'for one ***' },
        hidden: { sensitive: true },
        web_port: { sensitive: false, value: 8080 },
      },
      web: { port: 8080, node: 'n-1', path: '/' },
    });
    const lines = await bench.lines(runs, run);
    const text = lines.map(({ message }) => message).join('\n');
    expect(lines.map(({ seq }) => seq)).toEqual(lines.map((_, index) => index + 1));
    expect(text).toContain('red ***');
    for (const gone of [secret, Buffer.from(secret).toString('base64'), privateKey.split('\n')[1] ?? '', '\u001b']) {
      expect(text).not.toContain(gone);
    }
    const stored = await bench.db.sql`select runs.*, s.* from runs, stack_states s`;
    expect(JSON.stringify(stored)).not.toContain(secret);
    const bytes = await bench.db.sql<{ all: Buffer }[]>`select s.state || r.inputs as all from stack_states s, runs r`;
    expect(bytes[0]?.all.includes(secret)).toBe(false);
    await bench.leavesNothing();
  });

  it('has nothing of the gateway in its environment', async () => {
    process.env['HEADGATE_TEST_SECRET'] = 'must-not-be-seen';
    process.env['TF_CLI_ARGS'] = '-invalid';
    const main =
      'resource "terraform_data" "a" {\n provisioner "local-exec" {\n  command = "env; cat /proc/[0-9]*/environ | tr \'\\\\0\' \'\\n\'; ls -a / /tmp"\n }\n}\n';
    const runs = bench.gateway();
    const run = await bench.apply(runs, bench.stack(main));
    expect((await bench.ended(runs, run)).status).toBe('APPLIED');
    const text = (await bench.lines(runs, run)).map(({ message }) => message).join('\n');
    expect(text).toContain('TF_IN_AUTOMATION=1');
    for (const gone of ['must-not-be-seen', 'HEADGATE', 'DATABASE_URL', 'root']) expect(text).not.toContain(gone);
  });

  it('waits for earlier runs of its cluster, in order, and not for other clusters', async () => {
    const runs = bench.gateway({ atOnceMax: 8 });
    const clusterId = uuidv7();
    const version = bench.stack(slow(1));
    const mine = await Promise.all([1, 2, 3].map(() => bench.apply(runs, version, { clusterId, stackId: uuidv7() })));
    const other = await bench.apply(runs, version);
    const all = await Promise.all([...mine, other].map((run) => bench.ended(runs, run)));
    expect(all.map(({ status }) => status)).toEqual(['APPLIED', 'APPLIED', 'APPLIED', 'APPLIED']);
    const spans = all.slice(0, 3).map(({ startedAtMs, endedAtMs }) => [startedAtMs ?? 0, endedAtMs ?? 0] as const);
    const ordered = spans.toSorted(([a], [b]) => a - b);
    for (const [index, [, end]] of ordered.slice(0, -1).entries())
      expect(ordered[index + 1]?.[0]).toBeGreaterThanOrEqual(end);
    expect(all[3]?.startedAtMs).toBeLessThan(ordered[2]?.[0] ?? 0);
  });

  it('is rejected with queue_full when ten runs wait for its cluster', async () => {
    const runs = bench.gateway({ findRunner: nothing });
    const clusterId = uuidv7();
    const version = bench.stack('');
    for (let waiting = 0; waiting < 10; waiting += 1) await bench.apply(runs, version, { clusterId });
    await expect(bench.apply(runs, version, { clusterId })).rejects.toThrow('queue_full');
  });
});

describe('canceling a run', () => {
  it('cancels a pending run at once', async () => {
    const runs = bench.gateway({ findRunner: nothing });
    const run = await bench.apply(runs, bench.stack(''));
    expect(await runs.cancel(run.id, systemAuthor)).toMatchObject({ kind: 'changed', run: { status: 'CANCELED' } });
    expect(await runs.cancel(run.id, systemAuthor)).toEqual({ kind: 'wrong_status', status: 'CANCELED' });
  });

  it('cancels a run that cannot begin because its inputs cannot be decrypted', async () => {
    const closed = {
      mark: () => Promise.resolve(null),
      seal: (bytes: Buffer) => Promise.resolve(bytes),
      open: () => Promise.reject(new Error('no key')),
    };
    const runs = bench.gateway({ sealer: closed });
    const run = await bench.apply(runs, bench.stack(slow(600)));
    await bench.becomes(runs, run, 'PLANNING');
    expect((await runs.cancel(run.id, systemAuthor)).kind).toBe('changed');
    // It is taken up again when its lease ends.
    await bench.db.sql`update runs set lease_until = clock_timestamp() where id = ${run.id}`;
    expect((await bench.ended(runs, run)).status).toBe('CANCELED');
  });

  it('is not needed when no key opens the inputs: the run fails and names the missing key', async () => {
    const refusal = new AppError('secrets_unavailable', { message: 'This takes the key k1.' });
    const sealed = { mark: () => Promise.resolve(null), seal: (bytes: Buffer) => Promise.resolve(bytes) };
    const runs = bench.gateway({ sealer: { ...sealed, open: () => Promise.reject(refusal) } });
    const run = await bench.apply(runs, bench.stack(''));
    expect(await bench.ended(runs, run)).toMatchObject({
      status: 'FAILED',
      failureCode: 'RUNNER_UNAVAILABLE',
      failureMessage: 'its inputs cannot be read: This takes the key k1.',
    });
  });

  it('stops an apply with its resources recorded, and a destroy removes them', async () => {
    const runs = bench.gateway();
    const run = await bench.apply(runs, bench.stack(slow(600)));
    await bench.prints(runs, run, 'begun');
    expect(await runs.cancel(run.id, systemAuthor)).toMatchObject({ kind: 'changed', run: { status: 'CANCELING' } });
    expect((await bench.ended(runs, run)).status).toBe('CANCELED');
    const destroy = await runs.destroy(run.id, systemAuthor);
    if (destroy.kind !== 'created') throw new Error(destroy.kind);
    expect(await bench.ended(runs, destroy.run)).toMatchObject({ status: 'DESTROYED', changes: { remove: 2 } });
  });
});

describe('a gateway that stops', () => {
  it('leaves its run to another gateway, which continues the log without gaps or repetitions', async () => {
    const first = bench.gateway();
    const run = await bench.apply(first, bench.stack(slow(2)));
    await bench.prints(first, run, 'begun');
    await first.loop.close();
    const second = bench.gateway();
    expect((await bench.ended(second, run)).status).toBe('APPLIED');
    const messages = (await bench.lines(second, run)).map(({ message }) => message);
    for (const once of ['begun', 'done']) expect(messages.filter((message) => message === once)).toHaveLength(1);
    expect(messages.filter((message) => message.includes('successfully initialized'))).toHaveLength(1);
  });
});

describe('a gateway that was killed', () => {
  /** A run of a gateway that was killed behind its claim, with a lease of an hour. */
  async function claimed(holder: string): Promise<Run> {
    const waiting = bench.gateway({ findRunner: nothing });
    const run = await bench.apply(waiting, bench.stack('output "x" {\n  value = 1\n}\n'));
    await waiting.loop.close();
    const found = await createClaims(bench.db.sql, holder).claimNext(bench.runner.place);
    if (found?.id !== run.id) throw new Error('it was not claimed');
    await bench.db.sql`update runs set lease_until = clock_timestamp() + interval '1 hour'`;
    return run;
  }

  it('keeps its run from other gateways while the lease lasts', async () => {
    const run = await claimed(randomUUID());
    const other = bench.gateway();
    // It has looked for work, and done it.
    await bench.ended(other, await bench.apply(other, bench.stack('')));
    const [row] = await bench.db.sql`select fence, status from runs where id = ${run.id}`;
    expect(row).toEqual({ fence: 1, status: 'PLANNING' });
  });

  it('continues its own runs when it is back, long before their leases expire', async () => {
    const holder = randomUUID();
    const run = await claimed(holder);
    const again = bench.gateway({ holder });
    expect(await bench.ended(again, run)).toMatchObject({ status: 'APPLIED' });
  });

  it('fails runs whose work folder is missing, as after a restore of the database', async () => {
    const holder = randomUUID();
    const run = await claimed(holder);
    await bench.db.sql`update runs set prepared = true, phase = 'init-1', phase_started_at = clock_timestamp()`;
    const again = bench.gateway({ holder });
    expect(await bench.ended(again, run)).toMatchObject({
      status: 'FAILED',
      failureCode: 'INTERRUPTED',
      failureMessage: 'its work folder no longer exists; the last stored state of its resources is kept',
    });
  });

  it('leaves its runs to gateways of its own machine only, also after their leases expired', async () => {
    const run = await claimed(randomUUID());
    await bench.db.sql`update runs set lease_until = clock_timestamp()`;
    const runner = { ...bench.runner, place: 'elsewhere' };
    const terraform = { path: '', product: 'Terraform' as const, version: '' };
    const far = bench.gateway({ findRunner: () => Promise.resolve({ runner, terraform, problem: null }) });
    await bench.ended(far, await bench.apply(far, bench.stack('')));
    const [row] = await bench.db.sql`select fence, status from runs where id = ${run.id}`;
    expect(row).toEqual({ fence: 1, status: 'PLANNING' });
    await far.loop.close();
    const near = bench.gateway();
    expect(await bench.ended(near, run)).toMatchObject({ status: 'APPLIED' });
  });
});

describe('a run whose processes are killed', () => {
  it('fails with APPLY_FAILED and its resources recorded when Terraform is killed', async () => {
    const runs = bench.gateway();
    const run = await bench.apply(runs, bench.stack(slow(600)));
    await bench.prints(runs, run, 'begun');
    killIn(bench, run.id, 'terraform');
    expect(await bench.ended(runs, run)).toMatchObject({
      status: 'FAILED',
      failureCode: 'APPLY_FAILED',
      failureMessage:
        'apply was killed by signal 9 (exit code 137), as the kernel does when memory runs out; the resources that it created until then are kept',
    });
    expect(await bench.db.sql`select resources from stack_states`).toEqual([{ resources: 1 }]);
  });

  it('fails with INTERRUPTED and its resources recorded when all of them are killed', async () => {
    const runs = bench.gateway();
    const run = await bench.apply(runs, bench.stack(slow(600)));
    await bench.prints(runs, run, 'begun');
    await bench.runner.kill(run.id, 'apply');
    expect(await bench.ended(runs, run)).toMatchObject({ status: 'FAILED', failureCode: 'INTERRUPTED' });
    expect(await bench.db.sql`select resources from stack_states`).toEqual([{ resources: 1 }]);
    await bench.leavesNothing();
  });
});

describe('an archived cluster', () => {
  it('fails pending runs at once, and running ones with their resources recorded', async () => {
    const runs = bench.gateway();
    const clusterId = uuidv7();
    const version = bench.stack(slow(600));
    const run = await bench.apply(runs, version, { clusterId });
    const next = await bench.apply(runs, version, { clusterId });
    await bench.prints(runs, run, 'begun');
    expect(await runs.clustersInUse()).toEqual([clusterId]);
    bench.endCluster(clusterId);
    await runs.cancelOfCluster(clusterId, systemAuthor);
    const failed = { status: 'FAILED', failureCode: 'CLUSTER_GONE', failureMessage: 'the cluster was archived' };
    expect(await runs.find(next.id)).toMatchObject({ ...failed, startedAtMs: null });
    expect(await bench.ended(runs, run)).toMatchObject(failed);
    expect(await bench.db.sql`select resources from stack_states`).toEqual([{ resources: 2 }]);
    await runs.cancelOfCluster(clusterId, systemAuthor);
    expect(await runs.clustersInUse()).toEqual([]);
  });

  it('ends a run that a stopped gateway left running, with its resources recorded', async () => {
    const first = bench.gateway();
    const run = await bench.apply(first, bench.stack(slow(600)));
    await bench.prints(first, run, 'begun');
    await first.loop.close();
    bench.endCluster(run.clusterId);
    const second = bench.gateway();
    expect(await bench.ended(second, run)).toMatchObject({ status: 'FAILED', failureCode: 'CLUSTER_GONE' });
    expect(await bench.db.sql`select resources from stack_states`).toEqual([{ resources: 2 }]);
    await bench.leavesNothing();
  });
});

describe('a cluster moved to another organization during its runs', () => {
  it('fails its pending and running runs, with their state recorded', async () => {
    const first = bench.gateway();
    const version = bench.stack(slow(600));
    const run = await bench.apply(first, version);
    const next = await bench.apply(first, version, { clusterId: run.clusterId });
    await bench.prints(first, run, 'begun');
    await first.loop.close();
    bench.moveCluster(run.clusterId, uuidv7());
    const second = bench.gateway();
    const failed = { failureCode: 'CLUSTER_GONE', failureMessage: 'the cluster was moved to another organization' };
    expect(await bench.ended(second, run)).toMatchObject(failed);
    expect(await bench.ended(second, next)).toMatchObject({ ...failed, phase: null });
    expect(await bench.db.sql`select resources from stack_states`).toEqual([{ resources: 2 }]);
    await bench.leavesNothing();
  });
});

describe('a machine without bubblewrap', () => {
  it('runs only stacks that an administrator uploaded', async () => {
    const runner = { ...bench.runner, kind: 'process' as const };
    const terraform = { path: '', product: 'Terraform' as const, version: '' };
    const runs = bench.gateway({ findRunner: () => Promise.resolve({ runner, terraform, problem: null }) });
    const mine = await bench.apply(runs, bench.stack('', { isGlobal: false }));
    expect(await bench.ended(runs, mine)).toMatchObject({ status: 'FAILED', failureCode: 'RUNNER_UNAVAILABLE' });
    const theirs = await bench.apply(runs, bench.stack('output "x" {\n value = 1\n}'));
    expect(await bench.ended(runs, theirs)).toMatchObject({ status: 'APPLIED' });
  });
});

describe('destroying and superseding a run', () => {
  it('needs no Terraform when there are no resources to destroy', async () => {
    const runs = bench.gateway();
    const run = await bench.ended(runs, await bench.apply(runs, bench.stack('output "x" {\n value = var.no\n}')));
    const destroy = await runs.destroy(run.id, systemAuthor);
    if (destroy.kind !== 'created') throw new Error(destroy.kind);
    expect(await bench.ended(runs, destroy.run)).toMatchObject({ status: 'DESTROYED', logLines: 0 });
  });

  it('supersedes an applied run when a later apply succeeds', async () => {
    const runs = bench.gateway();
    const version = bench.stack('resource "terraform_data" "a" {}');
    const clusterId = uuidv7();
    const one = await bench.ended(runs, await bench.apply(runs, version, { clusterId }));
    const two = await bench.ended(runs, await bench.apply(runs, version, { clusterId }));
    expect(await runs.find(one.id)).toMatchObject({ status: 'SUPERSEDED' });
    expect(two).toMatchObject({ status: 'APPLIED', changes: { add: 0 } });
  });
});
