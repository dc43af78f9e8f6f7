import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, request, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import tar from 'tar-stream';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { packArchive, readArchive } from '#base/docker/docker.ts';
import { createLog } from '#base/log.ts';
import { keeperBody, phaseBody } from '#core/runs/runner/docker/bodies.ts';
import { containerName, labelsOf, networkName } from '#core/runs/runner/docker/names.ts';
import { type DockerGate, startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { ask, bodyOf, image as engineImage, policy as enginePolicy } from './container-decisions.ts';
import { containerFields, hostFields } from './docker-api-fields.ts';

const image = 'house/runs:1';
const policy = {
  ...enginePolicy,
  runImages: [image],
  runNetworks: ['site'],
  binds: [{ source: '/srv/mirror', isReadOnly: true }],
};
const refusal = { refusal: expect.any(String) };
const runId = '01980000-0000-7000-8000-0123456789ab';
const otherId = '01980000-0000-7000-8000-0123456789ac';
const settings = {
  image,
  network: null,
  egress: 'cluster',
  mirror: '/srv/mirror',
  memoryBytes: 536_870_912,
  milliCpus: 1000,
} as const;
const common = { runId, fleetId: 'fleet', settings };
type Made = Readonly<Record<string, unknown>> & { readonly HostConfig: Readonly<Record<string, unknown>> };
const keeper = keeperBody({ ...common, reach: ['10.0.0.1', 'node-1.example', 'fd00::1'] }) as Made;
const phase = phaseBody({ ...common, cwd: 'm', phase: { name: 'apply', args: ['apply', '-json'] } }) as Made;
const keeperUrl = `/v1.41/containers/create?name=${containerName(runId, 'work')}`;
const phaseUrl = `/v1.41/containers/create?name=${containerName(runId, 'apply')}.new`;
const post = (url: string, body: object) => ask('POST', url, body, policy);
const within = (body: Made, fields: object): object => ({ ...body, HostConfig: { ...body.HostConfig, ...fields } });
const both = [
  ['the keeper of a run', keeperUrl, keeper],
  ['a phase of a run', phaseUrl, phase],
] as const;

describe('the Docker gate: containers of runs', () => {
  it.each(both)('accepts %s as its runner creates it', (_what, url, body) => {
    expect(bodyOf(post(url, body))).toEqual(body);
  });

  it.each(both)("rejects every other field of Docker's API in %s", (_what, url, body) => {
    const rest = (all: readonly string[], own: object) => all.filter((field) => !Object.hasOwn(own, field));
    for (const value of [true, 1, 'host', ['/:/host'], { a: 'b' }, null]) {
      for (const field of [...rest(containerFields, body), 'NetworkingConfig']) {
        expect(post(url, { ...body, [field]: value }), field).toEqual(refusal);
      }
      for (const field of rest(hostFields, body.HostConfig)) {
        expect(post(url, within(body, { [field]: value })), field).toEqual(refusal);
      }
    }
  });

  it.each(both)('rejects %s without any one of its confining fields', (_what, url, body) => {
    for (const field of Object.keys(body)) {
      const less = Object.fromEntries(Object.entries(body).filter(([own]) => own !== field));
      expect(post(url, less), field).toEqual(refusal);
    }
    for (const field of Object.keys(body.HostConfig).filter((own) => own !== 'VolumesFrom')) {
      const HostConfig = Object.fromEntries(Object.entries(body.HostConfig).filter(([own]) => own !== field));
      expect(post(url, { ...body, HostConfig }), field).toEqual(refusal);
    }
  });

  it.each([
    ['the network of the machine', { NetworkMode: 'host' }],
    ['the network of another container', { NetworkMode: 'container:postgres' }],
    ['the network of another run', { NetworkMode: `container:${containerName(otherId, 'work')}` }],
    ['the network of its own run without its filter', { NetworkMode: networkName(runId) }],
    ['the volumes of another container', { VolumesFrom: ['postgres'] }],
    ['the volumes of another run', { VolumesFrom: [containerName(otherId, 'work')] }],
    ['two sets of volumes', { VolumesFrom: [containerName(runId, 'work'), 'postgres'] }],
    ['a capability', { CapAdd: ['NET_ADMIN'] }],
    ['capabilities that stay', { CapDrop: ['NET_RAW'] }],
    ['new privileges', { SecurityOpt: [] }],
    ['a root to write to', { ReadonlyRootfs: false }],
    ['memory of the disk', { MemorySwap: -1 }],
    ['memory without end', { Memory: 0, MemorySwap: 0 }],
    ['processes without end', { PidsLimit: -1 }],
    ['a temporary folder to execute from', { Tmpfs: { '/tmp': 'rw,exec' } }],
    [
      'the Docker socket',
      { Mounts: [{ Type: 'bind', Source: '/var/run/docker.sock', Target: '/mirror', ReadOnly: true }] },
    ],
    [
      'a mirror that may be written',
      { Mounts: [{ Type: 'bind', Source: '/srv/mirror', Target: '/mirror', ReadOnly: false }] },
    ],
    ['a volume of an engine', { Mounts: [{ Type: 'volume', Source: 'hf-cache', Target: '/mirror', ReadOnly: true }] }],
    ['a life of its own', { RestartPolicy: { Name: 'always' } }],
  ])('rejects a phase with %s', (_what, fields) => {
    expect(post(phaseUrl, within(phase, fields))).toEqual(refusal);
  });

  it.each([
    ['another program', { Entrypoint: ['/bin/sh', '-c', 'sleep 1', 'headgate'] }],
    ['a network of addresses', { Cmd: ['cluster', '0.0.0.0/0'] }],
    ['an option in place of an address', { Cmd: ['cluster', '-j'] }],
    ['an egress that nobody knows', { Cmd: ['everything'] }],
    ['a volume elsewhere', { Volumes: { '/work': {}, '/etc': {} } }],
    ['the image of an engine', { Image: engineImage }],
  ])('rejects a keeper with %s', (_what, fields) => {
    expect(post(keeperUrl, { ...keeper, ...fields })).toEqual(refusal);
  });

  it('rejects a keeper in a network that is neither its own nor listed, or with another capability', () => {
    expect(bodyOf(post(keeperUrl, within(keeper, { NetworkMode: 'site' })))).toMatchObject({ User: '0:0' });
    for (const fields of [
      { NetworkMode: 'bridge' },
      { NetworkMode: 'host' },
      { NetworkMode: networkName(otherId) },
      { CapAdd: ['NET_ADMIN', 'SYS_ADMIN'] },
      { CapAdd: ['SYS_ADMIN'] },
    ]) {
      expect(post(keeperUrl, within(keeper, fields)), JSON.stringify(fields)).toEqual(refusal);
    }
  });

  it('rejects names that differ from the labels, and an engine with the name of a run', () => {
    for (const name of [containerName(otherId, 'work'), 'headgate-chat-0123456789', containerName(runId, 'apply')]) {
      expect(post(`/v1.41/containers/create?name=${name}`, keeper), name).toEqual(refusal);
      expect(post(`/v1.41/containers/create?name=${name}`, phase), name).toEqual(refusal);
    }
    expect(post(phaseUrl, { ...phase, Labels: labelsOf('fleet', runId, 'other') })).toEqual(refusal);
    expect(post(phaseUrl, { ...phase, Labels: { ...labelsOf('fleet', runId, 'apply'), a: 'b' } })).toEqual(refusal);
  });

  it('rejects runs when no image is listed, and an engine image for a run', () => {
    for (const [, url, body] of both) expect(ask('POST', url, body, { ...policy, runImages: [] })).toEqual(refusal);
    expect(post(phaseUrl, { ...phase, Image: engineImage })).toEqual(refusal);
  });

  it('checks that the container a phase depends on is one of a run', () => {
    expect(post(phaseUrl, phase)).toMatchObject({
      targets: [{ path: `/v1.41/containers/${containerName(runId, 'work')}/json`, labels: ['headgate.run'] }],
    });
  });

  it('renames only phases, and never to the name of a volume keeper', () => {
    const rename = (to: string) => ask('POST', `/v1.41/containers/abc/rename?name=${to}`, undefined, policy);
    expect(rename(containerName(runId, 'apply'))).not.toHaveProperty('refusal');
    expect(rename(`${containerName(runId, 'apply')}.stopping`)).not.toHaveProperty('refusal');
    for (const to of [containerName(runId, 'work'), 'postgres', `${containerName(runId, 'apply')}.x`]) {
      expect(rename(to), to).toEqual(refusal);
    }
  });

  it.each([
    ['POST', '/v1.41/containers/abc/kill?signal=SIGINT', true],
    ['POST', '/v1.41/containers/abc/kill?signal=SIGKILL', true],
    ['POST', '/v1.41/containers/abc/kill?signal=SIGSTOP', false],
    ['POST', '/v1.41/containers/abc/kill', false],
    ['GET', '/v1.41/containers/abc/archive?path=%2Fwork%2Frun%2Fm%2Fterraform.tfstate', true],
    ['GET', '/v1.41/containers/abc/archive?path=%2Fetc%2Fshadow', false],
    ['GET', '/v1.41/containers/abc/archive?path=%2Fwork%2Frun%2F..%2F..%2Fetc%2Fshadow', false],
    ['GET', '/v1.41/containers/abc/archive?path=%2Fwork%2Frun%2Fm%2F..%2F..%2F..%2Fmirror', false],
    ['GET', '/v1.41/containers/abc/archive?path=%2Fwork%2Frun%2Fm%2F..', false],
    ['GET', '/v1.41/containers/abc/archive?path=%2Fwork%2Frun%2F..', false],
    ['GET', '/v1.41/containers/abc/archive?path=%2Fwork%2Frun%2Fm%2F.terraform.lock.hcl', true],
    ['GET', '/v1.41/containers/abc/archive', false],
    ['PUT', '/v1.41/containers/abc/archive?path=%2Fwork', true],
    ['PUT', '/v1.41/containers/abc/archive?path=%2F', false],
    ['PUT', '/v1.41/containers/abc/archive?path=%2Fwork&noOverwriteDirNonDir=1', false],
    ['POST', '/v1.41/containers/abc/exec', false],
    ['POST', '/v1.41/containers/abc/update', false],
    ['GET', '/v1.41/containers/abc/export', false],
  ])('decides about %s %s of a run: allowed is %s', (method, url, isAllowed) => {
    const decision = ask(method, url, undefined, policy);
    expect(decision).toMatchObject(isAllowed ? { targets: [{ labels: ['headgate.run'] }] } : refusal);
  });
});

describe('the Docker gate: files of runs', () => {
  const received: Buffer[] = [];
  let engine: Server | null = null;
  let gate: DockerGate | null = null;
  const dir = mkdtempSync(join(tmpdir(), 'hg-gate-runs-'));

  beforeAll(async () => {
    const socketPath = join(dir, 'docker.sock');
    engine = createServer((incoming, answer) => {
      void buffer(incoming).then((body) => {
        if (incoming.method === 'PUT') received.push(body);
        const labels: Record<string, string> = { 'headgate.managed': 'true' };
        if (incoming.url?.includes('abc') === true) labels['headgate.run'] = runId;
        answer.end(JSON.stringify({ Id: 'abc0', Config: { Labels: labels } }));
      });
    }).listen(socketPath);
    await once(engine, 'listening');
    gate = await startDockerGate({ host: '127.0.0.1', port: 0, socketPath, policy, log: createLog('silent') });
  });
  afterAll(async () => {
    await gate?.close();
    engine?.close();
    rmSync(dir, { recursive: true, force: true });
  });
  beforeEach(() => void received.splice(0));

  async function put(archive: Buffer, container = 'abc'): Promise<{ status: number; said: string }> {
    const path = `/v1.41/containers/${container}/archive?path=%2Fwork`;
    const sent = request({ host: '127.0.0.1', port: gate?.port, method: 'PUT', path, agent: false });
    sent.end(archive);
    const [answer] = (await once(sent, 'response')) as [Readable & { statusCode: number }];
    return { status: answer.statusCode, said: await text(answer) };
  }

  function packed(...entries: readonly object[]): Promise<Buffer> {
    const pack = tar.pack();
    for (const entry of entries) pack.entry({ ...plain, ...entry }, Buffer.alloc(0));
    pack.finalize();
    return buffer(pack);
  }
  const plain = { name: 'run/a', type: 'file', mode: 0o4777, uid: 0, gid: 0, mtime: new Date(0) };

  it.each([
    ['a link', { type: 'symlink', linkname: '/etc' }],
    ['a hard link', { type: 'link', linkname: '/etc/shadow' }],
    ['a device', { type: 'block-device', devmajor: 8, devminor: 0 }],
    ['a character device', { type: 'character-device', devmajor: 1, devminor: 1 }],
    ['a pipe', { type: 'fifo' }],
    ['a file beside the run’s folder', { name: 'other' }],
    ['a file with a path of the machine', { name: '/etc/passwd' }],
    ['a file that leads out', { name: 'run/../../etc/passwd' }],
    ['a file that leads out in the middle', { name: 'run/a/../../../x' }],
  ])('rejects %s, and forwards nothing of the archive', async (_what, entry) => {
    const { status, said } = await put(await packed(plain, entry));
    expect([status, said]).toEqual([403, expect.stringContaining('archive')]);
    expect(received).toEqual([]);
  });

  it('rejects bytes that are no archive, and containers that are not of a run', async () => {
    expect((await put(Buffer.alloc(2048, 'x'))).status).toBe(403);
    const fine = await packArchive([{ path: 'run/a', bytes: Buffer.from('a') }], { uid: 65_532, gid: 65_532 });
    expect((await put(fine, 'replica')).status).toBe(403);
    expect(received).toEqual([]);
  });

  it("forwards files as plain files of the run's user, for any original owner", async () => {
    expect((await put(await packed(plain, { name: `run/${'deep/'.repeat(40)}b`, mode: 0o666 }))).status).toBe(200);
    const bounds = { bytesMax: 1000, entriesMax: 1000 };
    const files = await readArchive(Readable.from(received), bounds);
    expect(files.filter(({ bytes }) => bytes !== null).map(({ path }) => path)).toEqual([
      'run/a',
      `run/${'deep/'.repeat(40)}b`,
    ]);
    const seen = new Set<string>();
    const extract = tar.extract();
    extract.on('entry', ({ type, mode, uid, gid }, content, next) => {
      seen.add(`${type} ${mode.toString(8)} ${uid}:${gid}`);
      content.resume();
      next();
    });
    await pipeline(Readable.from(received), extract);
    expect([...seen].toSorted()).toEqual(['directory 700 65532:65532', 'file 600 65532:65532', 'file 700 65532:65532']);
  });
});
