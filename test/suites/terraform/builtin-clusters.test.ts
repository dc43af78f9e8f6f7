import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { freePort } from '#test/free-port.ts';
import { processesWith } from '#test/terraform/processes.ts';
import { nodesNamed, useStackNode } from '#test/terraform/stack-node.ts';

const { ssh, prepare, node } = useStackNode();
const engineKey = 'key of this cluster';

/** Writes a program that stands for one that cannot be downloaded here. */
function standIn(name: string, program: string): string {
  const path = join(node, name);
  writeFileSync(path, `#!/bin/sh\nset -eu\n${program}`);
  chmodSync(path, 0o755);
  return path;
}

describe('the built-in stacks of several nodes', () => {
  it('include ray: rejects an unknown node, starts head and workers, and ends their jobs', async () => {
    const place = await prepare('ray');
    const folder = join(node, 'ray-cluster');
    const [port, dashboardPort] = [await freePort(), await freePort()];
    const variables = {
      nodes: [...nodesNamed(ssh(), 'n0'), { ...nodesNamed(ssh(), 'n1')[0], gpus: 2 }],
      engine_api_key: engineKey,
      folder,
      port,
      dashboard_port: dashboardPort,
    };
    await expect(place.change('apply', { ...variables, node: 'n7' })).rejects.toThrow('no node n7');
    await expect(place.change('apply', { ...variables, ray_version: '1; id' })).rejects.toThrow('of the form 2.60.0');
    const old = standIn('ray-old', rayProgram.replace('2.60.0', '2.51.1'));
    await expect(place.change('apply', { ...variables, ray_binary: old })).rejects.toThrow('has no authentication');

    const all = { ...variables, ray_binary: standIn('ray', rayProgram) };
    await place.change('apply', all);
    expect(JSON.parse(await place.terraform('output', '-json'))).toMatchObject({
      web_port: { value: dashboardPort },
      web_node: { value: 'n0' },
    });
    const [head, worker] = ['head', 'worker'].map((part) => readFileSync(join(folder, part, 'tmp/arguments'), 'utf8'));
    expect(head).toMatch(new RegExp(`^start --block .*--head --port=${port} .*--dashboard-host=127.0.0.1 `));
    expect(head).not.toContain('--num-gpus');
    expect(worker).toMatch(new RegExp(`^start --block .*--address=127.0.0.1:${port} .*--num-gpus=2 token=`));
    expect(worker?.split('token=')[1]).toBe(head?.split('token=')[1]);
    const token = readFileSync(join(folder, 'head', 'token'), 'utf8');
    expect(readFileSync(join(place.module, 'terraform.tfstate'), 'utf8')).not.toContain(token);
    const marks = ['head', 'worker'].map((part) => `HEADGATE_RAY=${join(folder, part)}`);
    for (const mark of marks) expect(processesWith(mark).length).toBeGreaterThan(1);

    // A Ray that somebody else started on the node continues.
    const other = spawn('sleep', ['1000'], { env: { ...process.env, HEADGATE_RAY: '/elsewhere' } });
    await place.change('destroy', all);
    for (const mark of marks) expect(processesWith(mark)).toEqual([]);
    expect([other.exitCode, other.signalCode]).toEqual([null, null]);
    other.kill();
    expect(existsSync(join(folder, 'head', 'token'))).toBe(false);
  });

  it('include k3s: verifies a download, starts server and agents, and ends their containers', async () => {
    const place = await prepare('k3s');
    const folder = join(node, 'k3s-cluster');
    const server = createServer((_, response) => void response.end(`#!/bin/sh\nset -eu\n${k3sProgram}`));
    const source = await new Promise<number>((resolve) => {
      server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
    });
    const hash = createHash('sha256').update(`#!/bin/sh\nset -eu\n${k3sProgram}`).digest('hex');
    const variables = {
      nodes: nodesNamed(ssh(), 'n0', 'n1'),
      engine_api_key: engineKey,
      folder,
      node: 'n1',
      port: 7443,
    };
    await expect(place.change('apply', { ...variables, install_url: "http://x/'; id'" })).rejects.toThrow('no query');
    const download = { ...variables, install_url: `http://127.0.0.1:${source}/k3s` };
    await expect(place.change('apply', download)).rejects.toThrow('Set both install_url and install_sha256');
    const other = { ...download, install_sha256: '0'.repeat(64) };
    await expect(place.change('apply', other)).rejects.toThrow('has another checksum than install_sha256');

    const all = { ...download, install_sha256: hash };
    await place.change('apply', all);
    server.close();
    expect(JSON.parse(await place.terraform('output', '-json'))).toMatchObject({
      server: { value: 'n1' },
      kubeconfig: { value: join(folder, 'server', 'kubeconfig.yaml') },
    });
    const [first, second] = ['server', 'agent'].map((part) =>
      readFileSync(join(folder, part, 'data/arguments'), 'utf8'),
    );
    expect(first).toMatch(/^server .*--node-name=n1 --https-listen-port=7443 .*--disable=traefik --disable=servicelb /);
    expect(second).toMatch(/^agent .*--server=https:\/\/127\.0\.0\.1:7443 .*--node-name=n0 .*--flannel-iface=lo/);
    const token = readFileSync(join(folder, 'server', 'agent-token'), 'utf8');
    expect(readFileSync(join(folder, 'agent', 'token'), 'utf8')).toBe(token);
    expect(readFileSync(join(folder, 'server', 'token'), 'utf8')).not.toBe(token);
    expect(readFileSync(join(place.module, 'terraform.tfstate'), 'utf8')).not.toContain(token);
    const containers = ['server', 'agent'].map((part) => `CONTAINER=${join(folder, part, 'data')}`);
    for (const container of containers) expect(processesWith(container)).toHaveLength(1);
    await place.change('destroy', all);
    for (const container of containers) expect(processesWith(container)).toEqual([]);
    for (const part of ['server', 'agent']) expect(processesWith(`HEADGATE_K3S=${join(folder, part)}`)).toEqual([]);
  });
});

/** Notes its arguments and its token, and has a job with its own session, as Ray's jobs have. */
const rayProgram = `
if [ "$1" = --version ]; then echo 'ray, version 2.60.0'; exit; fi
for argument in "$@"; do case $argument in --temp-dir=*) tmp=\${argument#*=} ;; esac; done
mkdir -p "$tmp"
echo "$* token=$(cat "$RAY_AUTH_TOKEN_PATH")" >"$tmp/arguments"
setsid sleep 1000 &
echo 'Ray runtime started.'
exec sleep 1000
`;

/** Notes its arguments, and has a shim that outlives it, with a container that does not have its environment. */
const k3sProgram = `
if [ "$1" = kubectl ]; then [ "$5" = --raw=/readyz ] && exec test -e "$3"; exit 1; fi
for argument in "$@"; do case $argument in --data-dir=*) data=\${argument#*=} ;; --write-kubeconfig=*) config=\${argument#*=} ;; esac; done
mkdir -p "$data/agent"
echo "$*" >"$data/arguments"
setsid sh -c 'env -i CONTAINER="$1" sleep 1000 & wait' shim "$data" &
[ "$1" = agent ] || touch "$config"
touch "$data/agent/kubelet.kubeconfig"
exec sleep 1000
`;
