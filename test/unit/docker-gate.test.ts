import { describe, expect, it } from 'vitest';
import { decide } from '#edge/docker-gate/calls.ts';

const policy = {
  isAllowedImage: (image: string) => image.startsWith('vllm/'),
  isAllowedBind: (path: string) => path === '/srv/models',
  allowsPorts: false,
  allowsSwarm: false,
};

const hostConfig = {
  NetworkMode: 'headgate-net',
  Mounts: [
    { Type: 'volume', Source: 'hf-cache', Target: '/root/.cache/huggingface', ReadOnly: false },
    { Type: 'bind', Source: '/srv/models', Target: '/models', ReadOnly: true },
  ],
};
const bind = (source: string) => ({ Mounts: [{ Type: 'bind', Source: source, Target: '/x', ReadOnly: true }] });
const container = {
  Image: 'vllm/vllm-openai:v0.29.0',
  Cmd: ['model'],
  Labels: { 'headgate.managed': 'true' },
  HostConfig: hostConfig,
};

function ask(method: string, url: string, body?: object) {
  return decide(policy, { method, url, body: body === undefined ? '' : JSON.stringify(body) });
}

const create = (body: object) => ask('POST', '/v1.41/containers/create?name=headgate-a', body);
const within = (fields: object) => create({ ...container, HostConfig: { ...hostConfig, ...fields } });

describe('the door to the Docker socket', () => {
  it.each([
    ['a call that no gateway makes', 'POST', '/v1.41/containers/abc/exec'],
    ['the files of a container', 'GET', '/containers/abc/archive?path=/'],
    ['building', 'POST', '/build'],
    ['volumes', 'DELETE', '/volumes/hf-cache'],
    ['a name of somebody else for a container', 'POST', '/containers/abc/rename?name=x'],
    ['another method', 'PUT', '/containers/abc/json'],
    ['a path that leads elsewhere', 'GET', '/containers/../secrets'],
    ['an encoded path', 'GET', '/containers/%2e%2e/json'],
    ['an image of a path that leads elsewhere', 'GET', '/images/a/../../secrets/json'],
    ['a name in the query that is not known', 'GET', '/containers/json?x=1'],
    ['a name in the query twice', 'POST', '/images/create?fromImage=vllm/a&fromImage=evil/b'],
    ['a body where none belongs', 'POST', '/containers/abc/start?detachKeys=1'],
    ['an image that is not allowed', 'POST', '/images/create?fromImage=evil/miner&tag=1'],
    ['importing an image', 'POST', '/images/create?fromSrc=http://example.com/a.tar'],
    ['a name of somebody else', 'POST', '/containers/create?name=postgres'],
  ])('refuses %s', (_what, method, url) => {
    expect(ask(method, url, url.includes('create?name') ? container : undefined)).toHaveProperty('refusal');
  });

  it.each([
    ['Privileged', { Privileged: true }],
    ['Privileged in small letters', { privileged: true }],
    ['PidMode', { PidMode: 'host' }],
    ['IpcMode of the host', { IpcMode: 'host' }],
    ['the network of the host', { NetworkMode: 'host' }],
    ['the network of another container', { NetworkMode: 'container:postgres' }],
    ['CapAdd', { CapAdd: ['SYS_ADMIN'] }],
    ['devices', { Devices: [{ PathOnHost: '/dev/sda' }] }],
    ['an unconfined profile', { SecurityOpt: ['seccomp=unconfined'] }],
    ['the root of the machine', bind('/')],
    ['a folder beside an allowed one', bind('/srv/models-secret')],
    ['a way out of an allowed folder', bind('/srv/models/../../etc')],
    ['the Docker socket', bind('/var/run/docker.sock')],
    ['binds in the other form', { Binds: ['/:/host'] }],
    ['a volume that is a folder', { Mounts: [{ Type: 'volume', Source: '/etc', Target: '/x', ReadOnly: true }] }],
    ['published ports', { PortBindings: { '8000/tcp': [{ HostIp: '0.0.0.0', HostPort: '8000' }] } }],
    ['another runtime', { Runtime: 'runc-debug' }],
  ])('refuses a container with %s', (_what, fields) => {
    expect(within(fields)).toHaveProperty('refusal');
  });

  it('refuses a container of another image, without our label, or with that of a gateway', () => {
    expect(create({ ...container, Image: 'alpine:3' })).toHaveProperty('refusal');
    expect(create({ ...container, Labels: {} })).toHaveProperty('refusal');
    const labels = { ...container.Labels, 'headgate.gateway': 'true' };
    expect(create({ ...container, Labels: labels })).toHaveProperty('refusal');
  });

  it('refuses a probe of GPUs that is more than that', () => {
    const probe = {
      Image: 'vllm/vllm-openai:v0.29.0',
      Entrypoint: ['nvidia-smi'],
      Cmd: ['--query-compute-apps=gpu_uuid,pid', '--format=csv,noheader,nounits'],
      Env: ['NVIDIA_VISIBLE_DEVICES=all'],
      Labels: { 'headgate.managed': 'true', 'headgate.probe': 'true' },
      NetworkDisabled: true,
      Healthcheck: { Test: ['NONE'] },
      HostConfig: { AutoRemove: true, NetworkMode: 'none', SecurityOpt: ['no-new-privileges'], PidMode: 'host' },
    };
    expect(create(probe)).not.toHaveProperty('refusal');
    expect(create({ ...probe, Entrypoint: ['sh'] })).toHaveProperty('refusal');
    expect(create({ ...probe, Cmd: ['--id=0', '--gpu-reset'] })).toHaveProperty('refusal');
    expect(create({ ...probe, HostConfig: { ...probe.HostConfig, ...bind('/srv/models') } })).toHaveProperty('refusal');
  });

  it('refuses a body that is read twice, by passing on what it read', () => {
    const body = JSON.stringify(container).replace('{', '{"Image":"evil/miner",');
    const call = decide(policy, { method: 'POST', url: '/containers/create?name=headgate-a', body });
    expect(call).toMatchObject({ body: JSON.stringify(container) });
  });

  it('shows only what bears our label, whatever was asked', () => {
    const filters = encodeURIComponent('{"label":["com.example"],"status":{"running":true}}');
    const call = ask('GET', `/v1.41/containers/json?all=1&filters=${filters}`);
    const query = new URLSearchParams('path' in call ? call.path.split('?')[1] : '');
    expect(JSON.parse(query.get('filters') ?? '')).toEqual({
      label: ['com.example', 'headgate.managed'],
      status: ['running'],
    });
  });

  it('asks for our label before a call on a container or network is passed on', () => {
    expect(ask('POST', '/v1.41/containers/abc/stop?t=10')).toMatchObject({
      path: '/v1.41/containers/abc/stop?t=10',
      targets: [{ path: '/v1.41/containers/abc/json', labels: ['headgate.managed'] }],
    });
    expect(ask('POST', '/networks/headgate-net/connect', { Container: 'abc' })).toMatchObject({
      targets: [
        { path: '/networks/headgate-net', labels: ['headgate.managed'] },
        { path: '/containers/abc/json', labels: ['headgate.managed', 'headgate.gateway'] },
      ],
    });
  });

  it('passes on an engine’s container and image', () => {
    expect(create(container)).toMatchObject({ method: 'POST', body: JSON.stringify(container), targets: [] });
    expect(ask('POST', '/images/create?fromImage=vllm/vllm-openai&tag=v0.29.0')).toMatchObject({ body: null });
    expect(ask('GET', '/images/vllm/vllm-openai:v0.29.0/json')).toMatchObject({ method: 'GET' });
  });
});
