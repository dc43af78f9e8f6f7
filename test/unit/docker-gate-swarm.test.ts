import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import type { ContainerDriverSettings, SwarmSettings } from '#core/catalog/catalog.ts';
import { planService } from '#core/fleet/swarm-service.ts';
import { decide } from '#edge/docker-gate/calls.ts';
import { type DockerGate, startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { containerEngine, holding } from '../suites/docker/kit.ts';

const policy = {
  isAllowedImage: (image: string) => image.startsWith('vllm/'),
  isAllowedBind: (path: string) => path.startsWith('/srv/models'),
  allowsPorts: false,
  allowsSwarm: true,
};

function ask(method: string, url: string, body?: object, over: Partial<typeof policy> = {}) {
  const sent = body === undefined ? '' : JSON.stringify(body);
  return decide({ ...policy, ...over }, { method, url, body: sent });
}

/** What is passed on, or the refusal. */
function bodyOf(call: ReturnType<typeof decide>): unknown {
  return 'refusal' in call ? call : JSON.parse(call.body ?? 'null');
}

const secretIds = ['aaaaaaaaaaaaaaaaaaaaaaaaa', 'bbbbbbbbbbbbbbbbbbbbbbbbb'];

/** A service as the driver makes it. */
function planned(driver: Partial<ContainerDriverSettings> = {}, over: Partial<SwarmSettings> = {}) {
  const docker = { type: 'unix', socketPath: '/var/run/docker.sock' } as const;
  const settings = { network: 'overlay', gpuResource: 'NVIDIA-GPU', secrets: 'files', isNamed: false } as const;
  const definition = containerEngine({ type: 'swarm', image: 'vllm/vllm-openai:v0.29.0', ...driver });
  const made = planService({
    order: {
      replicaId: 'r1',
      spec: { engineId: 'chat', hash: 'h1', definition },
      placement: { host: 'swarm', gpuIds: [] },
      fence: holding,
    },
    swarm: { ...settings, docker, ...over },
    fleetId: 'fleet',
    fleetSecret: 'a secret of the fleet',
    env: { NAME: 'a value' },
  });
  if (!made.ok) throw new Error(`There is no ${made.missing}.`);
  return made.plan;
}

interface ServiceBody {
  readonly Name: string;
  readonly Labels: Readonly<Record<string, string>>;
  readonly TaskTemplate: { readonly ContainerSpec: object; readonly [field: string]: unknown };
  readonly [field: string]: unknown;
}

function serviceOf(...settings: Parameters<typeof planned>): ServiceBody {
  return planned(...settings).body(secretIds, ['vllm', 'serve']) as ServiceBody;
}

const createService = (body: object, over: Partial<typeof policy> = {}) =>
  ask('POST', '/v1.41/services/create', body, over);

describe('the door to the Docker socket of a manager', () => {
  it.each([
    ['services', 'GET', '/services'],
    ['tasks', 'GET', '/tasks'],
    ['nodes', 'GET', '/nodes'],
    ['secrets', 'GET', '/secrets'],
    ['a new secret', 'POST', '/secrets/create'],
    ['a new service', 'POST', '/services/create'],
    ['a log', 'GET', '/services/headgate-a/logs?stdout=1'],
    ['the end of a service', 'DELETE', '/services/headgate-a'],
  ])('refuses %s until a swarm is allowed', (_what, method, url) => {
    expect(ask(method, `/v1.41${url}`, undefined, { allowsSwarm: false })).toEqual({
      refusal: 'Calls of a swarm need HEADGATE_DOCKER_SWARM.',
    });
  });

  it('refuses an overlay network until a swarm is allowed', () => {
    const overlay = {
      Name: 'headgate-a',
      CheckDuplicate: true,
      Driver: 'overlay',
      Attachable: true,
      Labels: { 'headgate.managed': 'true' },
    };
    expect(ask('POST', '/networks/create', overlay, { allowsSwarm: false })).toHaveProperty('refusal');
    expect(ask('POST', '/networks/create', overlay)).toMatchObject({ body: JSON.stringify(overlay) });
    for (const more of [{ Ingress: true }, { Driver: 'macvlan' }, { Options: { encrypted: '' } }, { Labels: {} }]) {
      expect(ask('POST', '/networks/create', { ...overlay, ...more })).toHaveProperty('refusal');
    }
  });

  it.each([
    ['the swarm itself, with the tokens to join it', 'GET', '/swarm'],
    ['another key of the swarm', 'GET', '/swarm/unlockkey'],
    ['leaving the swarm', 'POST', '/swarm/leave?force=1'],
    ['one node', 'GET', '/nodes/abc'],
    ['another role for a node', 'POST', '/nodes/abc/update?version=1'],
    ['the end of a node', 'DELETE', '/nodes/abc?force=1'],
    ['one service', 'GET', '/services/abc'],
    ['one secret', 'GET', '/secrets/abc'],
    ['another value for a secret', 'POST', '/secrets/abc/update?version=1'],
    ['configs', 'GET', '/configs'],
    ['one task', 'GET', '/tasks/abc'],
    ['the log of one task', 'GET', '/tasks/abc/logs?stdout=1'],
    ['the way back of a service', 'POST', '/services/abc/update?version=1&rollback=previous'],
    ['a login from another service', 'POST', '/services/abc/update?version=1&registryAuthFrom=spec'],
  ])('refuses %s', (_what, method, url) => {
    expect(ask(method, url)).toHaveProperty('refusal');
  });

  const volumeOf = (driver: object) => ({
    Type: 'volume',
    Source: 'a',
    Target: '/x',
    ReadOnly: false,
    VolumeOptions: { DriverConfig: driver },
  });
  const leading = '/srv/models/{{"\\x2e\\x2e"}}/{{"\\x2e\\x2e"}}/etc';
  const asMount = (source: string, target = '/x') => ({
    Mounts: [{ Type: 'bind', Source: source, Target: target, ReadOnly: true }],
  });

  it.each([
    ['another image', { Image: 'alpine:3' }],
    ['the root of the machine', asMount('/')],
    ['a volume that is a folder', { Mounts: [volumeOf({ Name: 'local', Options: { o: 'bind', device: '/' } })] }],
    ['a mount that reaches the machine', { Mounts: [{ ...asMount('/srv/models').Mounts[0], BindOptions: {} }] }],
    ['a pipe', { Mounts: [{ Type: 'npipe', Source: 'a', Target: '/x', ReadOnly: true }] }],
    ['memory in another place', { Mounts: [{ Type: 'tmpfs', Target: '/etc', TmpfsOptions: { SizeBytes: 1 } }] }],
    ['capabilities', { CapabilityAdd: ['CAP_SYS_ADMIN'] }],
    ['the capabilities of before', { Capabilities: ['CAP_SYS_ADMIN'] }],
    ['new privileges', { Privileges: { NoNewPrivileges: false } }],
    ['no profile', { Privileges: { NoNewPrivileges: true, Seccomp: { Mode: 'unconfined' } } }],
    ['another user', { User: '0' }],
    ['settings of the kernel', { Sysctls: { 'net.ipv4.ip_forward': '1' } }],
    ['names of hosts', { Hosts: ['1.2.3.4 huggingface.co'] }],
    ['other name servers', { DNSConfig: { Nameservers: ['1.2.3.4'] } }],
    ['labels of its containers', { Labels: { 'headgate.gateway': 'true' } }],
    ['configs', { Configs: [{ ConfigID: secretIds[0], ConfigName: 'headgate-a' }] }],
    ['a check of its own', { Healthcheck: { Test: ['CMD-SHELL', 'true'] } }],
    ['a field in small letters', { image: 'evil/miner' }],
    ['the secret of somebody else’s name', { Secrets: [{ SecretID: secretIds[0], SecretName: 'prod', File: {} }] }],
    [
      'a secret in another place',
      {
        Secrets: [
          {
            SecretID: secretIds[0],
            SecretName: 'headgate-a',
            File: { Name: '/etc/passwd', UID: '0', GID: '0', Mode: 0o444 },
          },
        ],
      },
    ],
  ])('refuses a service with %s', (_what, fields) => {
    const body = serviceOf();
    const TaskTemplate = { ...body.TaskTemplate, ContainerSpec: { ...body.TaskTemplate.ContainerSpec, ...fields } };
    expect(createService({ ...body, TaskTemplate })).toHaveProperty('refusal');
  });

  it('refuses a service with a mount that a template of the swarm leads elsewhere', () => {
    for (const fields of [asMount(leading), asMount('/srv/models', '/{{.Node.Hostname}}')]) {
      const { TaskTemplate, ...rest } = serviceOf();
      const ContainerSpec = { ...TaskTemplate.ContainerSpec, ...fields };
      const call = createService({ ...rest, TaskTemplate: { ...TaskTemplate, ContainerSpec } });
      expect(call).toEqual({ refusal: 'TaskTemplate.ContainerSpec.Mounts.0: templates lead elsewhere' });
    }
  });

  it.each([
    ['the network of the node', { Networks: [{ Target: 'host' }] }],
    ['a second network', { Networks: [{ Target: 'headgate-a' }, { Target: 'prod' }] }],
    ['another name in a network', { Networks: [{ Target: 'headgate-a', Aliases: ['postgres'] }] }],
    ['no network', { Networks: [] }],
    ['a log that is sent away', { LogDriver: { Name: 'syslog', Options: { 'syslog-address': 'tcp://1.2.3.4' } } }],
    ['a life of its own', { RestartPolicy: { Condition: 'any' } }],
    ['a plugin', { Runtime: 'plugin', PluginSpec: { Remote: 'evil/plugin' } }],
    ['further limits', { Resources: { Limits: { MemoryBytes: 1, Pids: 1 } } }],
  ])('refuses a task with %s', (_what, fields) => {
    const body = serviceOf();
    expect(createService({ ...body, TaskTemplate: { ...body.TaskTemplate, ...fields } })).toHaveProperty('refusal');
  });

  it.each([
    ['a name of somebody else', { Name: 'prod' }],
    ['no label of ours', { Labels: {} }],
    ['that of a gateway', { Labels: { 'headgate.managed': 'true', 'headgate.gateway': 'true' } }],
    ['a label that proxies obey', { Labels: { 'headgate.managed': 'true', 'traefik.enable': 'true' } }],
    ['a task on every node', { Mode: { Global: {} } }],
    ['many tasks', { Mode: { Replicated: { Replicas: 1000 } } }],
    ['an address of its own', { EndpointSpec: { Mode: 'vip' } }],
    ['a chosen port', { EndpointSpec: { Mode: 'dnsrr', Ports: [{ ...tcp(), PublishedPort: 443 }] } }],
    ['a port on all nodes', { EndpointSpec: { Mode: 'dnsrr', Ports: [{ ...tcp(), PublishMode: 'ingress' }] } }],
    ['an update by itself', { UpdateConfig: { Parallelism: 0 } }],
  ])('refuses a service with %s', (_what, fields) => {
    expect(createService({ ...serviceOf(), ...fields }, { allowsPorts: true })).toHaveProperty('refusal');
  });

  function tcp() {
    return { Protocol: 'tcp', TargetPort: 8000, PublishMode: 'host' };
  }

  it('refuses published ports where they are not allowed', () => {
    const body = serviceOf({}, { network: 'host' });
    expect(createService(body)).toHaveProperty('refusal');
    expect(bodyOf(createService(body, { allowsPorts: true }))).toEqual(body);
  });

  it.each([
    ['of somebody else’s name', { Name: 'prod' }],
    ['without our label', { Labels: {} }],
    ['from a driver', { Driver: { Name: 'vault' } }],
    ['that is a template', { Templating: { Name: 'golang' } }],
    ['that is no text', { Data: { a: 1 } }],
  ])('refuses a secret %s', (_what, fields) => {
    const body = { Name: 'headgate-a', Labels: planned().labels, Data: 'YQ==' };
    expect(ask('POST', '/secrets/create', body)).toMatchObject({ body: JSON.stringify(body) });
    expect(ask('POST', '/secrets/create', { ...body, ...fields })).toHaveProperty('refusal');
  });

  it('passes on every service that the driver makes, once its network and secrets are found to be ours', () => {
    const plan = planned({ env: { HF_TOKEN: '${NAME}' } });
    const body = plan.body(secretIds, null);
    expect(bodyOf(createService(body))).toEqual(body);
    expect(createService(body)).toMatchObject({
      path: '/v1.41/services/create',
      passesRegistryAuth: true,
      targets: [
        { path: `/v1.41/networks/${plan.network}`, labels: ['headgate.managed'] },
        { path: `/v1.41/secrets/${secretIds[0]}`, labels: ['headgate.managed'] },
        { path: `/v1.41/secrets/${secretIds[1]}`, labels: ['headgate.managed'] },
      ],
    });
    const full = serviceOf(
      {
        entrypoint: ['/bin/sh'],
        gpus: { count: 2, memoryBytesMin: null, profile: null },
        memoryBytesMax: 2 ** 35,
        shmBytes: 2 ** 30,
        constraints: ['node.labels.gpu==h100'],
        volumes: [
          { source: '/srv/models', target: '/models', readOnly: true },
          { source: 'hf-cache', target: '/root/.cache/huggingface', readOnly: false },
        ],
      },
      { secrets: 'environment' },
    );
    expect(bodyOf(createService(full))).toEqual(full);
  });

  it('shows only what bears our label', () => {
    for (const path of ['/services', '/tasks', '/secrets']) {
      const call = ask('GET', `${path}?filters=${encodeURIComponent('{"name":["a"]}')}`);
      const query = new URLSearchParams('path' in call ? call.path.split('?')[1] : '');
      expect(JSON.parse(query.get('filters') ?? '')).toEqual({ name: ['a'], label: ['headgate.managed'] });
    }
  });
});

describe('the door to a manager that is there', () => {
  const manager: Manager = { services: {}, secrets: {}, calls: [], bodies: {} };
  let server: Server | null = null;
  let gate: DockerGate | null = null;
  let dir = '';
  let logged = '';

  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'hg-gate-'));
    const socketPath = join(dir, 'docker.sock');
    server = createManager(manager).listen(socketPath);
    await once(server, 'listening');
    const log = createLog('debug', { write: (line) => void (logged += line) });
    gate = await startDockerGate({ host: '127.0.0.1', port: 0, socketPath, policy, log });
  });
  afterAll(async () => {
    await gate?.close();
    server?.close();
    rmSync(dir, { recursive: true, force: true });
  });

  function send(method: string, path: string, body?: object): Promise<Response> {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    return fetch(`http://127.0.0.1:${gate?.port}${path}`, { method, ...sent });
  }

  const spec = { Name: 'headgate-a', Labels: { 'headgate.managed': 'true' }, TaskTemplate: { ForceUpdate: 0 } };
  const one = { Replicated: { Replicas: 1 } };
  const none = { Replicated: { Replicas: 0 } };

  it('refuses what is not ours', async () => {
    manager.services['prod'] = { Spec: { ...spec, Labels: { app: 'shop' }, Mode: one } };
    manager.secrets['prod'] = { Spec: { Name: 'prod', Labels: {} } };
    const foreign = { ...spec, Labels: { app: 'shop' }, Mode: none };
    expect((await send('POST', '/services/prod/update?version=7', foreign)).status).toBe(403);
    expect((await send('DELETE', '/services/prod')).status).toBe(403);
    expect((await send('GET', '/services/prod/logs?stdout=1')).status).toBe(403);
    expect((await send('DELETE', '/secrets/prod')).status).toBe(403);
    const asked = new Set(manager.calls.filter((call) => call.includes('prod')));
    expect([...asked]).toEqual(['GET /services/prod', 'GET /secrets/prod']);
  });

  it('refuses a service with the secret of somebody else', async () => {
    const [id = ''] = secretIds;
    manager.secrets[id] = { Spec: { Name: 'headgate-a', Labels: { app: 'shop' } } };
    expect((await send('POST', '/services/create', serviceOf())).status).toBe(403);
    expect(manager.calls).not.toContain('POST /services/create');
  });

  it('refuses to make a service another one, and one that is not there yet', async () => {
    manager.services['ours'] = { Spec: { ...spec, Mode: one } };
    const others = [
      { ...spec, Mode: { Replicated: { Replicas: 2 } } },
      { ...spec, Mode: { Global: {} } },
      { ...spec, Mode: none, TaskTemplate: { ForceUpdate: 1 } },
      { ...spec, Mode: none, tasktemplate: { ContainerSpec: { Image: 'evil/miner' } } },
      { Name: 'headgate-a', Mode: none },
    ];
    for (const body of others) {
      expect((await send('POST', '/services/ours/update?version=7', body)).status).toBe(403);
    }
    expect((await send('POST', '/services/later/update?version=7', { ...spec, Mode: none })).status).toBe(404);
    expect(manager.calls.filter((call) => call.includes('update'))).toEqual([]);
  });

  it('passes on the end of a service of ours', async () => {
    manager.services['ending'] = { Spec: { ...spec, Mode: one } };
    const body = { ...spec, Mode: none };
    expect((await send('POST', '/services/ending/update?version=7', body)).status).toBe(200);
    expect((await send('DELETE', '/services/ending')).status).toBe(200);
    expect(JSON.parse(manager.bodies['POST /services/ending/update?version=7'] ?? 'null')).toEqual(body);
    expect(manager.calls).toContain('DELETE /services/ending');
  });

  it('writes no value of a secret into its log', async () => {
    const Data = Buffer.from('what nobody may read').toString('base64');
    const body = { Name: 'headgate-a', Labels: { 'headgate.managed': 'true' }, Data };
    expect((await send('POST', '/secrets/create', body)).status).toBe(200);
    for (const wrong of [{ Name: Data }, { Labels: { [Data]: Data } }, { Data: `${Data}!` }, { Templating: Data }]) {
      expect((await send('POST', '/secrets/create', { ...body, ...wrong })).status).toBe(403);
    }
    expect(logged).toContain('/secrets/create');
    expect(logged).not.toContain(Data);
  });
});

/** What a manager has, as its inspections show it, and what it was asked for. */
interface Manager {
  readonly services: Record<string, object>;
  readonly secrets: Record<string, object>;
  readonly calls: string[];
  /** By call, the last one of each. */
  readonly bodies: Record<string, string>;
}

function createManager({ services, secrets, calls, bodies }: Manager): Server {
  return createServer((incoming, answer) => {
    void text(incoming).then((body) => {
      const { method = '', url = '' } = incoming;
      calls.push(`${method} ${url}`);
      bodies[`${method} ${url}`] = body;
      const [, kind = '', id = ''] = /^\/(services|secrets)\/(\w+)$/.exec(url) ?? [];
      const found = method === 'GET' && kind !== '' ? (kind === 'services' ? services : secrets)[id] : {};
      answer.writeHead(found === undefined ? 404 : 200, { 'content-type': 'application/json' });
      answer.end(JSON.stringify(found ?? { message: 'not found' }));
    });
  });
}
