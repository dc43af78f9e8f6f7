import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { hostname } from 'node:os';
import { planned, runScript, type Scene, secret } from './escape-scene.ts';
import {
  appended,
  asking,
  bind,
  type Body,
  type Escape,
  inHostConfig,
  printing,
  printsStatus,
  shows,
  volume,
  within,
} from './escapes.ts';

/** Containers that get more than an engine needs. */

function reads(name: string, change: (scene: Scene) => (body: Body) => object | string, path = '/x/secret'): Escape {
  return {
    name,
    attempt: async (way, scene) => (await runScript(way, printing(path), change(scene)))?.includes(secret) === true,
  };
}

export const mounts: readonly Escape[] = [
  {
    name: 'a link that a container has planted in a listed folder',
    async attempt(way, { models, folder }) {
      const script = `require('node:fs').symlinkSync('${folder}', '/x/link')`;
      await runScript(way, script, within(bind(models)));
      const found = await runScript(way, printing('/x/secret'), within(bind(`${models}/link`)));
      rmSync(`${models}/link`, { force: true });
      return found?.includes(secret) === true;
    },
  },
  reads('a folder below a listed one', ({ models }) => within(bind(`${models}/below`))),
  reads('a folder beside a listed one', ({ folder }) => within(bind(folder))),
  reads('the way up out of a listed folder', ({ models }) => within(bind(`${models}/..`))),
  reads('a folder as a bind of the other form', ({ folder }) => within({ Binds: [`${folder}:/x`] })),
  reads(
    'a field in small letters',
    ({ folder }) =>
      (body) =>
        inHostConfig(body, `"binds":["${folder}:/x"]`),
  ),
  reads(
    'a field with a letter that folds to another',
    ({ folder }) =>
      (body) =>
        inHostConfig(body, `"Bind\u017f":["${folder}:/x"]`),
  ),
  reads(
    'a second object in other letters',
    ({ folder }) =>
      (body) =>
        appended(body, `"hostconfig":{"Binds":["${folder}:/x"]}`),
  ),
  reads(
    'the same object twice',
    ({ folder }) =>
      (body) =>
        appended(body, `"HostConfig":{"Binds":["${folder}:/x"]}`),
  ),
  reads(
    'a member of a mount twice',
    ({ folder }) =>
      (body) =>
        JSON.stringify(within(volume('hf-cache'))(body)).replace(
          '"Source":"hf-cache"',
          `"Source":"hf-cache","type":"bind","source":"${folder}"`,
        ),
  ),
  reads('the volume of somebody else', () => within(volume('shop_db'))),
  reads('a volume that is a folder', () => within(volume('shop_folder'))),
  reads('a new volume that is a folder', ({ folder }) => {
    const Options = { type: 'none', o: 'bind', device: folder };
    return within(volume('hf-cache-2', { VolumeOptions: { DriverConfig: { Name: 'local', Options } } }));
  }),
  reads('the volumes of somebody’s container', ({ shop }) => within({ VolumesFrom: [shop.id] }), '/db/secret'),
  {
    name: 'the Docker socket',
    async attempt(way, { docker }) {
      const script = `require('node:http').get({socketPath: '/x', path: '/version'}, (a) => a.pipe(process.stdout))`;
      return (await runScript(way, script, within(bind(docker.socketPath))))?.includes('ApiVersion') === true;
    },
  },
];

const capabilitiesOf = (status: string): bigint => BigInt(`0x${/CapEff:\s*([0-9a-f]+)/.exec(status)?.[1] ?? '0'}`);
const has = (status: string, capability: bigint): boolean => ((capabilitiesOf(status) >> capability) & 1n) === 1n;
const netRaw = 13n;
const sysAdmin = 21n;
const without =
  (field: string) =>
  (body: Body): object => ({
    ...body,
    HostConfig: Object.fromEntries(Object.entries(body.HostConfig).filter(([name]) => name !== field)),
  });

const listing = `console.log(require('fs').readdirSync('/proc').includes('${process.pid}'))`;

export const privileges: readonly Escape[] = [
  shows(
    'a capability',
    () => printsStatus,
    () => within({ CapAdd: ['SYS_ADMIN'] }),
    (text) => has(text, sysAdmin),
  ),
  shows(
    'capabilities that are not dropped',
    () => printsStatus,
    () => without('CapDrop'),
    (text) => has(text, netRaw),
  ),
  shows(
    'new privileges',
    () => printsStatus,
    () => without('SecurityOpt'),
    (text) => /NoNewPrivs:\s*0/.test(text),
  ),
  shows(
    'no profile of system calls',
    () => printsStatus,
    () => within({ SecurityOpt: ['no-new-privileges', 'seccomp=unconfined'] }),
    (text) => /Seccomp:\s*0/.test(text),
  ),
  shows(
    'a device of the machine',
    () => `console.log(require('node:fs').existsSync('/dev/of-the-machine'))`,
    () =>
      within({
        Devices: [{ PathOnHost: '/dev/zero', PathInContainer: '/dev/of-the-machine', CgroupPermissions: 'rwm' }],
      }),
    (text) => text.includes('true'),
  ),
  shows(
    'what the engine hides of the kernel',
    () => printing('/proc/self/mounts'),
    () => within({ MaskedPaths: [], ReadonlyPaths: [] }),
    (text) => !text.includes('/proc/kcore'),
  ),
  shows(
    'a setting of the kernel',
    () => printing('/proc/sys/net/ipv4/ip_unprivileged_port_start'),
    () => within({ Sysctls: { 'net.ipv4.ip_unprivileged_port_start': '7' } }),
    (text) => /^\W*7$/m.test(text),
  ),
  shows(
    'another program in the container that sees the machine’s processes',
    () => '',
    () =>
      ({ Image }) =>
        appended(
          {
            Image,
            Entrypoint: ['nvidia-smi'],
            Cmd: ['--query-gpu=uuid', '--format=csv,noheader,nounits'],
            Env: [],
            Labels: { 'headgate.managed': 'true', 'headgate.fleet': 'fleet', 'headgate.probe': 'true' },
            NetworkDisabled: true,
            Healthcheck: { Test: ['NONE'] },
            HostConfig: { NetworkMode: 'none', AutoRemove: true, SecurityOpt: ['no-new-privileges'], PidMode: 'host' },
          },
          `"entrypoint":["/usr/bin/node","--eval",${JSON.stringify(listing)}],"cmd":[],"hostconfig":{"AutoRemove":false}`,
        ),
    (text) => text.includes('true'),
  ),
];

/** A container of which its creation is the proof: not every machine that runs these tests may run it. */
function made(name: string, fields: object): Escape {
  return {
    name,
    async attempt(way) {
      const { name: container, body } = planned('');
      const { status } = await way('POST', `/v1.41/containers/create?name=${container}`, within(fields)(body));
      await way('DELETE', `/v1.41/containers/${container}?force=true`);
      return status === 201;
    },
  };
}

export const creations: readonly Escape[] = [
  made('privileges', { Privileged: true }),
  made('to outlive everything when memory is short', { OomScoreAdj: -999 }),
  made('the control groups of the machine', { CgroupnsMode: 'host' }),
  made('the users of the machine', { UsernsMode: 'host' }),
  made('a group of the machine', { GroupAdd: ['0'] }),
  made('all kinds of devices', { DeviceCgroupRules: ['a *:* rwm'] }),
  made('a life of its own', { RestartPolicy: { Name: 'always' } }),
  made('names of its own for hosts', { ExtraHosts: ['huggingface.co:10.0.0.1'] }),
  made('a log without an end', { LogConfig: { Type: 'json-file', Config: {} } }),
  made('a network of its own choice by a default', { NetworkMode: 'default' }),
];

export const namespaces: readonly Escape[] = [
  shows(
    'the processes of the machine',
    () => printing(`/proc/${process.pid}/cmdline`),
    () => within({ PidMode: 'host' }),
    (text) => text.includes(readFileSync('/proc/self/cmdline', 'utf8').slice(0, 4)),
  ),
  shows(
    'the processes of somebody’s container',
    () => printing('/proc/1/cmdline'),
    ({ shop }) => within({ PidMode: `container:${shop.id}` }),
    (text) => text.includes(secret),
  ),
  {
    name: 'the shared memory of the machine',
    async attempt(way) {
      const file = `/dev/shm/hg-escape-${process.pid}`;
      writeFileSync(file, secret);
      try {
        return (await runScript(way, printing(file), within({ IpcMode: 'host' })))?.includes(secret) === true;
      } finally {
        rmSync(file);
      }
    },
  },
  {
    name: 'the network of the machine',
    async attempt(way) {
      const server = createServer((_, answer) => answer.end(secret)).listen(0, '127.0.0.1');
      await once(server, 'listening');
      try {
        const script = asking(`127.0.0.1:${(server.address() as AddressInfo).port}`);
        return (await runScript(way, script, within({ NetworkMode: 'host' })))?.includes(secret) === true;
      } finally {
        server.close();
      }
    },
  },
  shows(
    'the network of somebody’s container',
    () => asking('127.0.0.1:8000'),
    ({ shop }) =>
      (body) => ({ ...within({ NetworkMode: `container:${shop.id}` })(body), ExposedPorts: {} }),
    (text) => text.includes(secret),
  ),
  shows(
    'the name of the machine',
    () => `console.log('<' + require('node:os').hostname() + '>')`,
    () => within({ UTSMode: 'host' }),
    (text) => text.includes(`<${hostname()}>`),
  ),
];
