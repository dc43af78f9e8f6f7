import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { freePort } from '#test/free-port.ts';
import { processesWith } from '#test/terraform/processes.ts';
import { nodesNamed, until, useStackNode } from '#test/terraform/stack-node.ts';

const { ssh, prepare, node } = useStackNode();

it('the built-in stack slurm runs jobs on its nodes, and ends them', async () => {
  const place = await prepare('slurm');
  const folder = join(node, 'slurm');
  // All users of the node ask MUNGE.
  chmodSync(node, 0o755);
  const variables = {
    nodes: nodesNamed(ssh(), 'n0'),
    engine_api_key: 'key of this cluster',
    folder,
    controller_port: await freePort(),
    node_port: await freePort(),
  };
  await expect(place.change('apply', { ...variables, node: 'n7' })).rejects.toThrow('no node n7');
  const [two] = nodesNamed(ssh(), 'n0').map((each) => ({ ...each, gpus: 64 }));
  await expect(place.change('apply', { ...variables, nodes: [two] })).rejects.toThrow('lists 64 GPUs for this node');
  await place.change('apply', variables);

  const settings = { SLURM_CONF: join(folder, 'slurm.conf') };
  const say = (program: string, ...args: readonly string[]): string =>
    execFileSync(program, args, {
      encoding: 'utf8',
      cwd: node,
      env: { PATH: process.env['PATH'], ...settings },
    }).trim();
  const [cpus, mib] = say('sinfo', '-h', '-N', '-n', 'n0', '-o', '%c %m').split(' ').map(Number);
  expect(cpus).toBeGreaterThan(0);
  expect(mib).toBeGreaterThan(100);
  expect(say('srun', 'sh', '-c', 'echo "$SLURMD_NODENAME in $(pwd)"')).toBe(`n0 in ${node}`);
  const id = say('sbatch', '--parsable', '--wrap', 'setsid sleep 1000 & sleep 1000');
  await until(() => (say('squeue', '-h', '-j', id, '-o', '%T') === 'RUNNING' ? true : null));
  const mark = `SLURM_CONF=${settings.SLURM_CONF}`;
  await until(() => (processesWith(mark).length > 4 ? true : null));

  const key = readFileSync(join(folder, 'private', 'munge.key'), 'utf8');
  expect(readFileSync(join(place.module, 'terraform.tfstate'), 'utf8')).not.toContain(key);
  await place.change('destroy', variables);
  expect(processesWith(mark)).toEqual([]);
  expect(existsSync(join(folder, 'private', 'munge.key'))).toBe(false);
});
