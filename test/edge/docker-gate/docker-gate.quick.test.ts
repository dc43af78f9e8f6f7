import { describe, expect, it } from 'vitest';
import { networkBody } from '#test/docker/planned-container.ts';
import { ask, create, createUrl, image, ownName as name, planned, policy } from './container-decisions.ts';
import { createFields, documentedCalls } from './docker-api-fields.ts';

const refusal = { refusal: expect.any(String) };
const base = planned();

describe('the Docker gate: calls', () => {
  const passed = [
    'GET /_ping',
    'HEAD /_ping',
    'GET /version',
    'GET /info',
    'GET /events',
    'GET /containers/json',
    'GET /containers/{id}/json',
    'GET /containers/{id}/logs',
    'POST /containers/create',
    'POST /containers/{id}/attach',
    'POST /containers/{id}/rename',
    'POST /containers/{id}/start',
    'POST /containers/{id}/stop',
    'DELETE /containers/{id}',
    'GET /images/{name}/json',
    'DELETE /images/{name}',
    'POST /images/create',
    'GET /networks',
    'GET /networks/{id}',
    'POST /networks/create',
    'POST /networks/{id}/connect',
    'POST /networks/{id}/disconnect',
    'DELETE /networks/{id}',
  ];
  const others = documentedCalls.filter((call) => !passed.includes(call));

  it("rejects every other call of Docker's API, with any body", () => {
    expect(others).toHaveLength(documentedCalls.length - passed.length);
    for (const call of others) {
      const [method = '', path = ''] = call.split(' ');
      const url = path.replaceAll(/\{\w+\}/g, 'headgate-chat-0123456789');
      for (const prefix of ['', '/v1.41', '/v1.99']) expect(ask(method, prefix + url), call).toEqual(refusal);
    }
  });

  it.each([
    ['another method', 'PUT', '/containers/abc/json'],
    ['a path that leads elsewhere', 'GET', '/containers/../secrets'],
    ['an encoded path', 'GET', '/containers/%2e%2e/json'],
    ['an encoded slash', 'GET', '/containers/a%2Fjson'],
    ['two slashes', 'GET', '//containers/json'],
    ['another way to write a slash', 'GET', '/containers\\abc/json'],
    ['a slash at the end', 'POST', '/containers/abc/stop/'],
    ['a line at the end', 'GET', '/containers/abc/json\n'],
    ['other letters', 'POST', '/Containers/abc/stop'],
    ['an address with a host', 'GET', 'http://docker/containers/json'],
    ['all of the server', 'OPTIONS', '*'],
    ['a fragment', 'GET', '/_ping#/containers'],
    ['an image of a path that leads elsewhere', 'GET', '/images/vllm/../../secrets/json'],
    ['an API that reads bodies in its own way', 'POST', '/v1.24/containers/abc/start'],
    ['the API before that of Docker 20.10', 'GET', '/v1.40/containers/json'],
    ['two versions', 'GET', '/v1.41/v1.41/containers/json'],
    ['a version that is none', 'GET', '/v2/containers/json'],
    ['a parameter that is not known', 'GET', '/containers/json?x=1'],
    ['a parameter that everything has', 'GET', '/containers/json?constructor=1'],
    ['a parameter of another value', 'GET', '/containers/json?all=maybe'],
    ['a second query', 'GET', '/containers/json?all=1?size=1'],
    ['readings without an end', 'GET', '/containers/abc/stats'],
    ['a stream of readings', 'GET', '/containers/abc/stats?stream=true'],
    ['the end of an image that is not on the list', 'DELETE', '/images/shop/old:v1'],
    ['the end of an image by its id', 'DELETE', `/images/sha256:${'a'.repeat(64)}`],
    ['the end of an image that containers use', 'DELETE', '/images/vllm/a:v1?force=true'],
    ['another signal', 'POST', '/containers/abc/stop?signal=SIGUSR1'],
    ['keys that end a stream', 'POST', '/containers/abc/start?detachKeys=1'],
    ['what a container reads', 'POST', '/containers/abc/attach?stream=1&stdin=1'],
    ['a foreign name for a container', 'POST', '/containers/abc/rename?name=x'],
    ['no name for a container', 'POST', '/containers/abc/rename'],
    ['a container of a name that compose gives', 'POST', '/containers/abc/rename?name=headgate-gateway-1'],
    ['filters beside labels', 'GET', '/containers/json?filters={"volume":["shop_db"]}'],
    ['filters that are none', 'GET', '/networks?filters=[1]'],
  ])('rejects %s', (_what, method, url) => {
    expect(ask(method, url)).toEqual(refusal);
  });

  it('rejects a body where none belongs', () => {
    expect(ask('POST', '/containers/abc/start', { Binds: ['/:/host'] })).toEqual(refusal);
    expect(ask('GET', '/containers/abc/json', { a: 1 })).toEqual(refusal);
    expect(ask('POST', '/containers/abc/start', {})).toMatchObject({ body: null });
  });

  it.each(['shop', 'headgate-gateway-1', 'headgate_stores', '/headgate-a-0123456789', `${name}.stopping`, `${name}/x`])(
    'rejects a new container named %s',
    (wrong) => {
      expect(ask('POST', `/containers/create?name=${encodeURIComponent(wrong)}`, base)).toEqual(refusal);
    },
  );

  it('rejects a new container without a name, or with two', () => {
    expect(ask('POST', '/containers/create', base)).toEqual(refusal);
    expect(ask('POST', `${createUrl}&name=shop`, base)).toEqual(refusal);
  });

  it('lists only what has our label, for any filter', () => {
    for (const path of ['/containers/json', '/networks', '/events']) {
      const filters = encodeURIComponent('{"label":{"com.example":true}}');
      const call = ask('GET', `/v1.41${path}?filters=${filters}`);
      const query = new URLSearchParams('path' in call ? call.path.split('?')[1] : '');
      expect(JSON.parse(query.get('filters') ?? '')).toEqual({ label: ['com.example', 'headgate.managed'] });
    }
  });

  it("lists the gateways in an engine's network, and nothing in other networks", () => {
    const listOf = (networks: readonly string[]) =>
      ask('GET', `/containers/json?all=1&filters=${encodeURIComponent(JSON.stringify({ network: networks }))}`);
    const call = listOf([name]);
    const query = new URLSearchParams('path' in call ? call.path.split('?')[1] : '');
    expect(JSON.parse(query.get('filters') ?? '')).toEqual({ network: [name], label: ['headgate.gateway'] });
    expect(listOf(['shop_default'])).toEqual(refusal);
    expect(listOf([name, 'shop_default'])).toEqual(refusal);
  });

  it('checks our label before it forwards a call on a container or network', () => {
    expect(ask('POST', '/v1.41/containers/abc/stop?t=10')).toMatchObject({
      path: '/v1.41/containers/abc/stop?t=10',
      targets: [{ path: '/v1.41/containers/abc/json', labels: ['headgate.managed'], place: 'path' }],
    });
    const connect = { Container: 'abc', EndpointConfig: { GwPriority: -1 } };
    expect(ask('POST', '/networks/headgate-net/connect', connect)).toMatchObject({
      targets: [
        { path: '/networks/headgate-net', labels: ['headgate.managed'], place: 'path' },
        { path: '/containers/abc/json', labels: ['headgate.managed', 'headgate.gateway'], place: ['Container'] },
      ],
    });
    expect(create(base)).toMatchObject({
      targets: [{ path: `/v1.41/networks/${String(base.HostConfig['NetworkMode'])}`, labels: ['headgate.managed'] }],
    });
  });
});

describe('the Docker gate: images', () => {
  const digest = `sha256:${'b'.repeat(64)}`;
  it.each([
    ['another repository', 'alpine:3'],
    ['one of the same beginning', 'vllm-evil/app:v1'],
    ['no version', 'vllm/vllm-openai'],
    ['an id', digest],
    ['the beginning of an id', 'bbbbbbbbbbbb'],
    ['a path that leads elsewhere', 'vllm/../evil:v1'],
    ['two slashes', 'vllm//app:v1'],
    ['a registry in the middle', 'vllm/x:5000/evil/app:v1'],
    ['two tags', 'vllm/app:v1:v2'],
    ['a digest behind the version of a pattern', `nvidia/cuda:12.4@${digest}`],
    ['another digest', `house/app:v1@${digest}`],
    ['only the version of that digest', 'house/app:v1'],
    ['a line', 'vllm/app:v1\nevil'],
  ])('rejects to run or show %s', (_what, wrong) => {
    expect(create({ ...base, Image: wrong })).toEqual(refusal);
    expect(ask('GET', `/images/${wrong}/json`)).toEqual(refusal);
  });

  it.each([
    ['another repository', 'fromImage=evil/miner&tag=1'],
    ['a file', 'fromSrc=http://example.com/a.tar'],
    ['a file beside an image', 'fromSrc=-&fromImage=vllm/a&tag=1'],
    ['another name for what comes', 'fromImage=vllm/a&tag=1&repo=vllm/b'],
    ['all versions', 'fromImage=vllm/vllm-openai'],
    ['two images', 'fromImage=vllm/a&tag=1&fromImage=evil/b'],
    ['a version that hides another one', 'fromImage=nvidia/cuda:12&tag=11.0'],
    ['a version that hides a digest', `fromImage=nvidia/cuda:12&tag=${digest}`],
    ['changes', 'fromImage=vllm/a&tag=1&changes=CMD%20x'],
  ])('rejects to pull %s', (_what, query) => {
    expect(ask('POST', `/images/create?${query}`)).toEqual(refusal);
  });

  it('forwards the listed images', () => {
    const ofList = [image, `vllm/a@${digest}`, 'vllm/deep/er:v1', 'nvidia/cuda:12.4.1', policy.images[2] ?? ''];
    for (const right of ofList) expect(create({ ...base, Image: right }), right).not.toHaveProperty('refusal');
    expect(ask('POST', '/images/create?fromImage=vllm/vllm-openai&tag=v0.32.0')).toMatchObject({ body: null });
    expect(ask('POST', `/images/create?fromImage=vllm/a&tag=${digest}`)).toMatchObject({ passesRegistryAuth: true });
    expect(ask('GET', '/images/vllm/vllm-openai:v0.32.0/json')).toMatchObject({ method: 'GET' });
    expect(ask('DELETE', '/images/vllm/vllm-openai:v0.32.0')).toMatchObject({ method: 'DELETE', body: null });
  });
});

describe('the Docker gate: networks', () => {
  const body = networkBody(name);
  const make = (fields: object) => ask('POST', '/v1.41/networks/create', { ...body, ...fields });

  it("rejects every other field of Docker's API", () => {
    for (const field of createFields.network.filter((other) => !Object.hasOwn(body, other))) {
      for (const value of [true, 'x', {}, []]) expect(make({ [field]: value }), field).toEqual(refusal);
    }
  });

  it.each([
    ['an interface of the machine', { Options: { 'com.docker.network.bridge.name': 'br0' } }],
    ['options of its driver', { Options: { 'com.docker.network.bridge.host_binding_ipv4': '0.0.0.0' } }],
    ['another driver', { Driver: 'macvlan' }],
    ['the network of the machine', { Driver: 'host' }],
    ['an overlay', { Driver: 'overlay', Attachable: true }],
    ['foreign addresses', { IPAM: { Config: [{ Subnet: '10.0.0.0/8' }] } }],
    ['a name of docker compose', { Name: 'headgate_stores' }],
    ['no label of ours', { Labels: { 'com.example': 'a' } }],
    ['the same name as another', { CheckDuplicate: false }],
  ])('rejects a network with %s', (_what, fields) => {
    expect(make(fields)).toEqual(refusal);
  });

  it.each([
    ['an address of its own', { EndpointConfig: { IPAMConfig: { IPv4Address: '10.0.0.2' } } }],
    ['a foreign name', { EndpointConfig: { Aliases: ['postgres'] } }],
    ['the way out', { EndpointConfig: { GwPriority: 1 } }],
    ['options of its driver', { EndpointConfig: { DriverOpts: {} } }],
    ['no container', { Container: undefined }],
  ])('rejects a connection to a network with %s', (_what, fields) => {
    const join = { Container: 'abc', EndpointConfig: { GwPriority: -1 } };
    expect(ask('POST', `/networks/${name}/connect`, join)).not.toHaveProperty('refusal');
    expect(ask('POST', `/networks/${name}/connect`, { ...join, ...fields })).toEqual(refusal);
    expect(ask('POST', `/networks/${name}/disconnect`, join)).toEqual(refusal);
  });

  it('forwards the network of an engine', () => {
    expect(make({})).toMatchObject({ body: JSON.stringify(body), targets: [] });
    const leave = { Container: 'abc', Force: true };
    expect(ask('POST', `/networks/${name}/disconnect`, leave)).toMatchObject({ targets: [{}, { mayBeDeleted: true }] });
  });
});
