import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { type DockerGate, startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { serviceOf } from '#test/docker-gate/swarm-decisions.ts';
import { image } from '#test/docker/docker-drivers.ts';
import { type Answer, type Way, wayTo } from './escape-scene.ts';
import { startSwarm, type TestSwarm } from '#test/docker/swarm-machines.ts';

let swarm: TestSwarm | null = null;
let gate: DockerGate | null = null;
let foreign = { service: '', secret: '', config: '', network: '', node: '' };

const foreignName = 'headgate-prod-0123456789';
const idle = { Image: image, Command: ['/usr/bin/node', '--eval', 'setInterval(() => {}, 1e6)'] };
const Data = Buffer.from('a secret of somebody').toString('base64');

beforeAll(async () => {
  swarm = await startSwarm([[]]);
  const make = async (kind: string, body: object): Promise<string> => {
    const made = (await swarm?.call('POST', `/${kind}/create`, body)) as { ID?: string; Id?: string };
    return made.ID ?? made.Id ?? '';
  };
  const spec = { Name: 'prod', TaskTemplate: { ContainerSpec: idle }, Mode: { Replicated: { Replicas: 1 } } };
  const [node] = (await swarm.call('GET', '/nodes')) as { ID: string }[];
  foreign = {
    service: await make('services', spec),
    secret: await make('secrets', { Name: foreignName, Data }),
    config: await make('configs', { Name: 'prod', Data }),
    network: await make('networks', { Name: foreignName, Driver: 'overlay', Attachable: true }),
    node: node?.ID ?? '',
  };
  const policy = {
    images: ['headgate-test/*'],
    binds: [{ source: '/srv/models', isReadOnly: true }],
    volumes: [{ source: 'hf-cache', isReadOnly: false }],
    allowsPorts: true,
    allowsSwarm: true,
    runImages: [],
    runNetworks: [],
  };
  const socketPath = swarm.nodes[0]?.docker.socketPath ?? '';
  gate = await startDockerGate({ host: '127.0.0.1', port: 0, socketPath, policy, log: createLog('silent') });
  // The network of the engine itself.
  const { Networks: networks } = serviceOf().TaskTemplate as { Networks?: { Target: string }[] };
  const made = await throughDoor('POST', '/v1.41/networks/create', {
    Name: networks?.[0]?.Target,
    CheckDuplicate: true,
    Driver: 'overlay',
    Attachable: true,
    Labels: { 'headgate.managed': 'true' },
  });
  if (made.status !== 201) throw new Error(made.text);
});
afterAll(async () => {
  await gate?.close();
  await swarm?.stop();
});

const throughDoor: Way = (...call) => wayTo({ port: gate?.port ?? 0 })(...call);
const withoutIt: Way = (...call) => wayTo({ socketPath: swarm?.nodes[0]?.docker.socketPath ?? '' })(...call);

type Body = ReturnType<typeof serviceOf>;
const body = (): Body => serviceOf({ image }, { secrets: 'environment', network: 'overlay' });
const whole = (fields: object) => (): object => ({ ...body(), ...fields });
const task = (fields: object) => (): object => ({ ...body(), TaskTemplate: { ...body().TaskTemplate, ...fields } });
const inContainer = (fields: object) => (): object =>
  task({ ContainerSpec: { ...body().TaskTemplate.ContainerSpec, ...fields } })();
const mount = (fields: object) => ({ Mounts: [{ Target: '/x', ReadOnly: false, ...fields }] });

/** Makes a service and removes it. */
async function make(way: Way, spec: object): Promise<Answer> {
  const made = await way('POST', '/v1.41/services/create', spec);
  const { ID: id } = JSON.parse(made.text) as { ID?: string };
  if (id !== undefined) await withoutIt('DELETE', `/v1.41/services/${id}`);
  return made;
}

describe('the Docker gate on a manager', () => {
  it('allows a service of the driver', async () => {
    expect((await make(throughDoor, body())).status).toBe(201);
  });

  const services: readonly (readonly [string, () => object])[] = [
    ['the root of the machine', inContainer(mount({ Type: 'bind', Source: '/' }))],
    ['the Docker socket', inContainer(mount({ Type: 'bind', Source: '/var/run/docker.sock' }))],
    ['a folder below a listed one', inContainer(mount({ Type: 'bind', Source: '/srv/models/below', ReadOnly: true }))],
    ['a folder to write that may only be read', inContainer(mount({ Type: 'bind', Source: '/srv/models' }))],
    ['a folder by a template', inContainer(mount({ Type: 'bind', Source: String.raw`/srv/{{"\x2e\x2e"}}/etc` }))],
    ['a foreign volume', inContainer(mount({ Type: 'volume', Source: 'shop_db' }))],
    [
      'a volume that is a folder',
      inContainer(
        mount({
          Type: 'volume',
          Source: 'hf-cache',
          VolumeOptions: { DriverConfig: { Name: 'local', Options: { type: 'none', o: 'bind', device: '/' } } },
        }),
      ),
    ],
    ['memory in place of settings', inContainer(mount({ Type: 'tmpfs', Target: '/etc' }))],
    ['a capability', inContainer({ CapabilityAdd: ['CAP_SYS_ADMIN'] })],
    ['capabilities that stay', inContainer({ CapabilityDrop: [] })],
    ['a setting of the kernel', inContainer({ Sysctls: { 'net.ipv4.ip_forward': '1' } })],
    ['another user', inContainer({ User: '0' })],
    ['names of hosts', inContainer({ Hosts: ['10.0.0.1 huggingface.co'] })],
    ['labels of its containers', inContainer({ Labels: { 'headgate.gateway': 'true' } })],
    [
      'a foreign secret',
      () =>
        inContainer({
          Secrets: [
            {
              SecretID: foreign.secret,
              SecretName: foreignName,
              File: { Name: 'A', UID: '0', GID: '0', Mode: 0o444 },
            },
          ],
        })(),
    ],
    [
      'a foreign config',
      () =>
        inContainer({
          Configs: [
            { ConfigID: foreign.config, ConfigName: 'prod', File: { Name: '/a', UID: '0', GID: '0', Mode: 0o444 } },
          ],
        })(),
    ],
    ['a foreign network by its name', task({ Networks: [{ Target: foreignName }] })],
    ['a foreign network by its id', () => task({ Networks: [{ Target: foreign.network }] })()],
    ['the network of the machine', task({ Networks: [{ Target: 'host' }] })],
    ['a life of its own', task({ RestartPolicy: { Condition: 'any' } })],
    ['a task on every node', whole({ Mode: { Global: {} } })],
    ['many tasks', whole({ Mode: { Replicated: { Replicas: 100 } } })],
    [
      'a port of its choice on all nodes',
      whole({ EndpointSpec: { Mode: 'vip', Ports: [{ Protocol: 'tcp', TargetPort: 80, PublishedPort: 21_443 }] } }),
    ],
    ['a label that proxies obey', whole({ Labels: { ...body().Labels, 'traefik.enable': 'true' } })],
    ['a foreign name', whole({ Name: 'shop' })],
    [
      'a second body in small letters',
      () => {
        const { TaskTemplate: task, ...rest } = body();
        const tasktemplate = { ContainerSpec: { ...task.ContainerSpec, Mounts: [] } };
        return { ...rest, TaskTemplate: task, tasktemplate };
      },
    ],
  ];

  it.each(services)('blocks a service with %s, which the manager allows', async (_name, spec) => {
    const refused = await make(throughDoor, spec());
    const taken = await make(withoutIt, spec());
    expect([refused.status, taken.status], refused.text + taken.text).toEqual([403, 201]);
  });

  const calls: readonly (readonly [string, string, () => string, object | undefined])[] = [
    ['the tokens to join the swarm', 'GET', () => '/swarm', undefined],
    ['the key of the swarm', 'GET', () => '/swarm/unlockkey', undefined],
    ['a foreign service', 'GET', () => `/services/${foreign.service}`, undefined],
    ['its log', 'GET', () => `/services/${foreign.service}/logs?stdout=true`, undefined],
    ['a foreign secret', 'GET', () => `/secrets/${foreign.secret}`, undefined],
    ['all configs', 'GET', () => '/configs', undefined],
    ['a foreign config', 'GET', () => `/configs/${foreign.config}`, undefined],
    ['one node', 'GET', () => `/nodes/${foreign.node}`, undefined],
    ['a new config', 'POST', () => '/configs/create', { Name: 'headgate-a-0123456789', Data }],
    [
      'a secret of a driver',
      'POST',
      () => '/secrets/create',
      { Name: 'headgate-b-0123456789', Data, Templating: { Name: 'golang' } },
    ],
    ['the end of a secret', 'DELETE', () => `/secrets/${foreign.secret}`, undefined],
    ['the end of a network', 'DELETE', () => `/networks/${foreign.network}`, undefined],
    ['the end of a service', 'DELETE', () => `/services/${foreign.service}`, undefined],
  ];

  it.each(calls)('blocks %s, which the manager allows', async (_name, method, path, sent) => {
    const refused = await throughDoor(method, `/v1.41${path()}`, sent);
    const given = await withoutIt(method, `/v1.41${path()}`, sent);
    expect(refused.status, refused.text).toBe(403);
    expect(given.status, given.text).toBeLessThan(400);
  });
});
