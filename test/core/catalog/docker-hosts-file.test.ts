import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type DockerHostsResult, formatEngineFileProblem, loadDockerHosts } from '#core/catalog/catalog.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'headgate-hosts-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function load(text: string | null, defaultDocker = 'unix:///var/run/docker.sock'): DockerHostsResult {
  const path = join(folder, 'hosts.yaml');
  if (text === null) rmSync(path, { force: true });
  else writeFileSync(path, text);
  return loadDockerHosts(folder, { defaultDocker });
}

function problemsOf(result: DockerHostsResult): string[] {
  const name = `${basename(folder)}/`;
  return result.ok ? [] : result.problems.map((problem) => formatEngineFileProblem(problem).replace(name, ''));
}

const far = 'name: a, docker: "tcp://10.0.0.5"';
const tls = 'tls: {ca: /k/ca.pem, cert: /k/cert.pem, key: /k/key.pem}';
const hostKey = `SHA256:${'A'.repeat(43)}`;
const ssh = `ssh: {key: /k, host_key: "${hostKey}"}`;

describe('hosts.yaml validation', () => {
  it.each([
    [
      'hosts: [{name: a, docker: "unix:///d.sock", gpu_access: rocm}]',
      'hosts[0].gpus: list the GPUs: with rocm, Docker does not report them',
    ],
    [
      'hosts: [{name: a, docker: "unix:///d.sock", gpu_access: rocm, gpus: [{id: renderD128}, {id: ../sda}]}]',
      'hosts[0].gpus[1].id: ',
    ],
    [
      'hosts: [{name: a, docker: "unix:///d.sock", gpu_access: rocm, gpus: [{id: renderD128}, {id: card0}]}]',
      'hosts[0].gpus[1].id: expected the file of the GPU in /dev/dri, such as renderD128',
    ],
    ['hosts: []', 'hosts.yaml:1: hosts: must not be empty'],
    ['hosts: [{name: a}]', 'hosts.yaml:1: hosts[0].docker: this field is missing'],
    ['hosts:\n  - name: a\n    docker: unix:///d.sock\n    user: x', 'hosts.yaml:4: hosts[0].user: unknown field'],
    ['hosts: [{name: a, docker: "http://h"}]', 'expected unix:///path, tcp://host:port or ssh://user@host'],
    ['hosts: [{name: a, docker: "tcp://u:p@h"}]', 'a password is not allowed here'],
    ['hosts: [{name: a, docker: "ssh://h"}]', 'the user is missing'],
    [`hosts: [{${far}, address: 10.0.0.5}]`, 'hosts[0].tls: this field is missing: without TLS, anyone who reaches'],
    [
      `hosts: [{${far}, ${tls}}]`,
      'hosts[0].address: this field is missing: replicas publish their port on this address',
    ],
    [`hosts: [{${far}, ${tls}, address: 0.0.0.0}]`, 'hosts[0].address: expected one IP address'],
    [`hosts: [{name: a, docker: "ssh://u@h"}]`, 'hosts[0].ssh: this field is missing'],
    [
      `hosts: [{name: a, docker: "ssh://u@h", address: 10.0.0.5, ssh: {key: /k, host_key: "${hostKey}"}}]`,
      'hosts[0].address: remove it; the gateway reaches replicas through ssh',
    ],
    [
      `hosts: [{name: a, docker: "ssh://u@h", ssh: {key: /k, host_key: MD5}}]`,
      'hosts[0].ssh.host_key: expected SHA256:',
    ],
    [`hosts: [{name: a, docker: "unix:///d.sock", ${tls}}]`, 'hosts[0].tls: allowed for tcp:// only'],
    ['hosts: [{name: a, docker: "unix:///d.sock", gpus: all}]', 'hosts[0].gpus: expected auto or a list of GPUs'],
    [
      'hosts: [{name: a, docker: "unix:///d.sock", gpus: [{id: GPU-1}, {id: GPU-1}]}]',
      'hosts[0].gpus[1].id: listed twice',
    ],
    [
      'hosts: [{name: a, docker: "unix:///d.sock", gpus: [{id: "0:1"}, {id: "nvidia.com/gpu=0"}]}]',
      'hosts[0].gpus[0].id: a slice of nvidia.com/gpu=0, which is listed too',
    ],
    [
      'hosts:\n- {name: a, docker: "unix:///d.sock"}\n- {name: a, docker: "unix:///e.sock"}',
      'hosts.yaml:3: hosts[1].name: "a" is already the name of another host',
    ],
    [
      'hosts:\n- {name: a, docker: "unix:///run/d.sock"}\n- {name: b, docker: "unix:///run/./d.sock"}',
      'hosts.yaml:3: hosts[1].docker: same Docker engine as host "a": list each machine once',
    ],
    [
      `hosts: [{${far}, ${tls}, address: 10.0.0.5}, {name: b, docker: "tcp://10.0.0.5:2376", ${tls}, address: 10.0.0.6}]`,
      'hosts[1].docker: same Docker engine as host "a"',
    ],
    [
      `hosts: [{name: a, docker: "ssh://u@h", ${ssh}}, {name: b, docker: "ssh://root@H:22/var/run/docker.sock", ${ssh}}]`,
      'hosts[1].docker: same Docker engine as host "a"',
    ],
    ['{}', 'hosts: this field is missing'],
    ['swarm: {}', 'swarm.docker: this field is missing'],
    ...['tcp://gate:2375', 'tasks.gate', 'tcp://tasks.gate:2375/x', 'ssh://u@tasks.gate', 'tcp://tasks.'].map(
      (gates): [string, string] => [
        `swarm: {docker: "unix:///d.sock", gates: "${gates}"}`,
        'swarm.gates: expected tcp://tasks.SERVICE:2375',
      ],
    ),
    ['swarm: {docker: "unix:///d.sock", address: 10.0.0.5}', 'swarm.address: unknown field'],
    [
      'swarm: {docker: "tcp://10.0.0.5", network: host}',
      'swarm.tls: this field is missing: without TLS, anyone who reaches',
    ],
    [`swarm: {docker: "tcp://10.0.0.5", ${tls}}`, 'swarm.network: use host'],
    [`swarm: {docker: "ssh://u@h", network: host}`, 'swarm.ssh: this field is missing'],
  ])('rejects %s', (text, problem) => {
    expect(problemsOf(load(text)).join('\n')).toContain(problem);
  });

  it('rejects a DOCKER_HOST that needs more than an address', () => {
    expect(problemsOf(load(null, 'ssh://u@h'))).toEqual(['DOCKER_HOST: define ssh hosts in hosts.yaml']);
  });
});

describe('hosts.yaml', () => {
  it('is optional: the default is one host, local, without a published port', () => {
    const local = { name: 'local', address: null, pools: [], gpus: null, gpuAccess: null, probeImage: null };
    const socket = { type: 'unix', socketPath: '/var/run/docker.sock' };
    const swarm = { network: 'overlay', gpuResource: 'NVIDIA-GPU', secrets: 'files', isNamed: false, gates: null };
    expect(load(null)).toEqual({
      ok: true,
      hosts: [{ ...local, docker: socket }],
      areHostsNamed: false,
      swarm: { ...swarm, docker: socket },
    });
    const proxy = { type: 'tcp', host: 'docker-gate', port: 2375, tls: null };
    expect(load(null, 'tcp://docker-gate:2375')).toEqual({
      ok: true,
      hosts: [{ ...local, docker: proxy }],
      areHostsNamed: false,
      swarm: { ...swarm, docker: proxy },
    });
  });

  it('can name a swarm manager, beside hosts or instead of them', () => {
    const text = `swarm: { docker: "tcp://10.0.0.5", ${tls}, network: host, gpu_resource: GPU, secrets: environment }`;
    const local = [{ name: 'local', docker: { type: 'unix' } }];
    const tcp = { type: 'tcp', host: '10.0.0.5', port: 2376 };
    const swarm = { docker: tcp, network: 'host', gpuResource: 'GPU', secrets: 'environment', isNamed: true };
    expect(load(text)).toMatchObject({ ok: true, hosts: local, swarm });
    const hosts = 'hosts: [{name: a, docker: "unix:///d.sock"}]';
    expect(load(`${hosts}\n${text}`)).toMatchObject({ ok: true, hosts: [{ name: 'a' }], swarm });
    expect(load(hosts, 'ssh://u@h')).toMatchObject({ ok: true, hosts: [{ name: 'a' }], swarm: null });
    const named = [text, `${hosts}\n${text}`].map((whole) => load(whole));
    expect(named.map((result) => result.ok && result.areHostsNamed)).toEqual([false, true]);
  });

  it('can name the docker-gates of a swarm by the tasks address of their service', () => {
    const gatesOf = (gates: string) => load(`swarm: {docker: "unix:///d.sock", gates: "${gates}"}`);
    const found = { host: 'tasks.runs_gate', port: 2375 };
    expect(gatesOf('tcp://tasks.runs_gate')).toMatchObject({ ok: true, swarm: { gates: found } });
    expect(gatesOf('tcp://tasks.runs_gate:9')).toMatchObject({ ok: true, swarm: { gates: { ...found, port: 9 } } });
  });

  it('can name several Docker engines of one machine', () => {
    const two = (a: string, b: string) => `hosts: [{name: a, docker: "${a}"}, {name: b, docker: "${b}"}]`;
    expect(load(two('unix:///run/a.sock', 'unix:///run/b.sock'))).toMatchObject({ ok: true });
    const text = `hosts: [{name: a, docker: "ssh://u@h/a.sock", ${ssh}}, {name: b, docker: "ssh://u@h", ${ssh}}]`;
    expect(load(text)).toMatchObject({ ok: true });
  });

  it('can name hosts with unix, tcp and ssh addresses', () => {
    const text = `
hosts:
  - { name: near, docker: unix:///run/docker.sock, gpus: auto, pools: [lab], gpu_access: cdi }
  - { ${far}, ${tls}, address: 10.0.0.5, gpus: [{ id: GPU-1, memory_gib: 80, profile: H100 }, { id: GPU-2 }] }
  - { name: c, docker: "ssh://ops@c.internal:2222", ssh: { key: /k/id, host_key: "${hostKey}" }, probe_image: cuda:1 }
  - { name: d, docker: unix:///run/d.sock, gpu_access: rocm, gpus: [{ id: renderD128, memory_gib: 192, profile: MI300X }] }
`;
    expect(load(text)).toMatchObject({
      ok: true,
      hosts: [
        { name: 'near', gpus: null, pools: ['lab'], gpuAccess: 'cdi' },
        {
          docker: { type: 'tcp', host: '10.0.0.5', port: 2376, tls: { ca: '/k/ca.pem' } },
          address: '10.0.0.5',
          gpus: [
            { id: 'GPU-1', memoryBytes: 80 * 2 ** 30, profile: 'H100' },
            { id: 'GPU-2', memoryBytes: null, profile: null },
          ],
        },
        {
          docker: {
            type: 'ssh',
            user: 'ops',
            host: 'c.internal',
            port: 2222,
            socketPath: '/var/run/docker.sock',
            hostKey,
          },
          address: null,
          probeImage: 'cuda:1',
        },
        { gpuAccess: 'rocm', gpus: [{ id: 'renderD128', memoryBytes: 192 * 2 ** 30, profile: 'MI300X' }] },
      ],
    });
  });
});
