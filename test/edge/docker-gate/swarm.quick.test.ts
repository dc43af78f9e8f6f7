import { describe, expect, it } from 'vitest';
import { bodyOf, ownName } from './container-decisions.ts';
import { createFields, taskContainerFields, taskFields } from './docker-api-fields.ts';
import { ask, createService, planned, secretIds, serviceOf } from '#test/docker-gate/swarm-decisions.ts';

const refusal = { refusal: expect.any(String) };

describe('the Docker gate: Swarm', () => {
  it.each([
    ['services', 'GET', '/services'],
    ['tasks', 'GET', '/tasks'],
    ['nodes', 'GET', '/nodes'],
    ['secrets', 'GET', '/secrets'],
    ['a new secret', 'POST', '/secrets/create'],
    ['a new service', 'POST', '/services/create'],
    ['a log', 'GET', '/services/headgate-a/logs?stdout=1'],
    ['the end of a service', 'DELETE', '/services/headgate-a'],
  ])('rejects %s until HEADGATE_DOCKER_SWARM is set', (_what, method, url) => {
    expect(ask(method, `/v1.41${url}`, undefined, { allowsSwarm: false })).toEqual({
      refusal: 'Swarm calls require HEADGATE_DOCKER_SWARM=true of docker-gate (DOCKER_ALLOW_SWARM in compose/.env).',
    });
  });

  it('rejects an overlay network until HEADGATE_DOCKER_SWARM is set', () => {
    const overlay = {
      Name: ownName,
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
  ])('rejects %s', (_what, method, url) => {
    expect(ask(method, url)).toHaveProperty('refusal');
  });

  it("rejects every other field of Docker's API, with any value", () => {
    const body = serviceOf();
    const { TaskTemplate: task } = body;
    const rest = (all: readonly string[], ours: object) => all.filter((field) => !Object.hasOwn(ours, field));
    for (const value of [true, 1, 'host', ['a'], { a: 'b' }, null]) {
      for (const field of rest(createFields.service, body)) {
        expect(createService({ ...body, [field]: value }), field).toEqual(refusal);
      }
      for (const field of rest(taskFields, task)) {
        expect(createService({ ...body, TaskTemplate: { ...task, [field]: value } }), field).toEqual(refusal);
      }
      for (const field of rest(taskContainerFields, task.ContainerSpec)) {
        const ContainerSpec = { ...task.ContainerSpec, [field]: value };
        expect(createService({ ...body, TaskTemplate: { ...task, ContainerSpec } }), field).toEqual(refusal);
      }
    }
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
    ['configs', { Configs: [{ ConfigID: secretIds[0], ConfigName: ownName }] }],
    ['a check of its own', { Healthcheck: { Test: ['CMD-SHELL', 'true'] } }],
    ['a field in small letters', { image: 'evil/miner' }],
    ['a secret with a foreign name', { Secrets: [{ SecretID: secretIds[0], SecretName: 'prod', File: {} }] }],
    [
      'a secret in another place',
      {
        Secrets: [
          {
            SecretID: secretIds[0],
            SecretName: ownName,
            File: { Name: '/etc/passwd', UID: '0', GID: '0', Mode: 0o444 },
          },
        ],
      },
    ],
  ])('rejects a service with %s', (_what, fields) => {
    const body = serviceOf();
    const TaskTemplate = { ...body.TaskTemplate, ContainerSpec: { ...body.TaskTemplate.ContainerSpec, ...fields } };
    expect(createService({ ...body, TaskTemplate })).toHaveProperty('refusal');
  });

  it('rejects a service whose mount contains a Swarm template', () => {
    for (const fields of [asMount(leading), asMount('/srv/models', '/{{.Node.Hostname}}')]) {
      const { TaskTemplate, ...rest } = serviceOf();
      const ContainerSpec = { ...TaskTemplate.ContainerSpec, ...fields };
      const call = createService({ ...rest, TaskTemplate: { ...TaskTemplate, ContainerSpec } });
      expect(call).toEqual({
        refusal: expect.stringMatching(/is not allowed; add this folder itself|must not contain templates/),
      });
    }
  });

  it.each([
    ['the network of the node', { Networks: [{ Target: 'host' }] }],
    ['a second network', { Networks: [{ Target: ownName }, { Target: 'prod' }] }],
    ['another name in a network', { Networks: [{ Target: ownName, Aliases: ['postgres'] }] }],
    ['no network', { Networks: [] }],
    ['a log that is sent away', { LogDriver: { Name: 'syslog', Options: { 'syslog-address': 'tcp://1.2.3.4' } } }],
    ['a life of its own', { RestartPolicy: { Condition: 'any' } }],
    ['a plugin', { Runtime: 'plugin', PluginSpec: { Remote: 'evil/plugin' } }],
    ['further limits', { Resources: { Limits: { MemoryBytes: 1, Pids: 1 } } }],
  ])('rejects a task with %s', (_what, fields) => {
    const body = serviceOf();
    expect(createService({ ...body, TaskTemplate: { ...body.TaskTemplate, ...fields } })).toHaveProperty('refusal');
  });

  it.each([
    ['a foreign name', { Name: 'prod' }],
    ['no label of ours', { Labels: {} }],
    ['that of a gateway', { Labels: { 'headgate.managed': 'true', 'headgate.gateway': 'true' } }],
    ['a label that proxies obey', { Labels: { 'headgate.managed': 'true', 'traefik.enable': 'true' } }],
    ['a task on every node', { Mode: { Global: {} } }],
    ['many tasks', { Mode: { Replicated: { Replicas: 1000 } } }],
    ['an address of its own', { EndpointSpec: { Mode: 'vip' } }],
    ['a chosen port', { EndpointSpec: { Mode: 'dnsrr', Ports: [{ ...tcp(), PublishedPort: 443 }] } }],
    ['a port on all nodes', { EndpointSpec: { Mode: 'dnsrr', Ports: [{ ...tcp(), PublishMode: 'ingress' }] } }],
    ['an update by itself', { UpdateConfig: { Parallelism: 0 } }],
  ])('rejects the spec of a service with %s', (_what, fields) => {
    expect(createService({ ...serviceOf(), ...fields }, { allowsPorts: true })).toHaveProperty('refusal');
  });

  function tcp() {
    return { Protocol: 'tcp', TargetPort: 8000, PublishMode: 'host' };
  }

  it('rejects published ports where they are not allowed', () => {
    const body = serviceOf({}, { network: 'host' });
    expect(createService(body)).toHaveProperty('refusal');
    expect(bodyOf(createService(body, { allowsPorts: true }))).toEqual(body);
  });

  it.each([
    ['with a foreign name', { Name: 'prod' }],
    ['without our label', { Labels: {} }],
    ['from a driver', { Driver: { Name: 'vault' } }],
    ['that is a template', { Templating: { Name: 'golang' } }],
    ['that is no text', { Data: { a: 1 } }],
  ])('rejects a secret %s', (_what, fields) => {
    const body = { Name: ownName, Labels: planned().labels, Data: 'YQ==' };
    expect(ask('POST', '/secrets/create', body)).toMatchObject({ body: JSON.stringify(body) });
    expect(ask('POST', '/secrets/create', { ...body, ...fields })).toHaveProperty('refusal');
  });

  it('forwards every service that the driver creates, once its network and secrets have our label', () => {
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
        ulimits: { memlock: -1, stack: 2 ** 26 },
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

  it('lists only what has our label', () => {
    for (const path of ['/services', '/tasks', '/secrets']) {
      const call = ask('GET', `${path}?filters=${encodeURIComponent('{"label":["a"]}')}`);
      const query = new URLSearchParams('path' in call ? call.path.split('?')[1] : '');
      expect(JSON.parse(query.get('filters') ?? '')).toEqual({ label: ['a', 'headgate.managed'] });
      expect(ask('GET', `${path}?filters={"id":["a"]}`)).toHaveProperty('refusal');
    }
  });
});
