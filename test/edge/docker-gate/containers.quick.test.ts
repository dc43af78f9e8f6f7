import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ask, bodyOf, create, image, planned } from './container-decisions.ts';
import { containerFields, hostFields, mountFields } from './docker-api-fields.ts';

const refusal = { refusal: expect.any(String) };
const base = planned();
const within = (fields: object, body = base) => ({ ...body, HostConfig: { ...body.HostConfig, ...fields } });
const mount = (fields: object) => ({ Type: 'volume', Source: 'hf-cache', Target: '/x', ReadOnly: false, ...fields });
const mounted = (fields: object) => within({ Mounts: [mount(fields)] });

const device = (path: string, fields: object = {}) => ({
  PathOnHost: path,
  PathInContainer: path,
  CgroupPermissions: 'rw',
  ...fields,
});

describe('the Docker gate: containers', () => {
  const values = [true, 1, 'host', ['/:/host'], { a: 'b' }, null];
  /** Known members, of 25, 71 and 9 that there are. */
  const known = {
    container: ['Image', 'Cmd', 'Entrypoint', 'Env', 'Labels', 'ExposedPorts', 'StopSignal', 'Healthcheck'],
    host: 'NetworkMode RestartPolicy Init IpcMode SecurityOpt CapDrop LogConfig Mounts ShmSize Memory MemorySwap Ulimits CpusetCpus CpusetMems Devices PortBindings DeviceRequests'.split(
      ' ',
    ),
    mount: ['Type', 'Source', 'Target', 'ReadOnly'],
  };

  it("rejects every other field of Docker's API, with any value", () => {
    const rest = (all: readonly string[], ours: readonly string[]) => all.filter((field) => !ours.includes(field));
    for (const value of values) {
      for (const field of [...rest(containerFields, known.container), 'NetworkingConfig', 'Config', 'Name']) {
        expect(create({ ...base, [field]: value }), field).toEqual(refusal);
      }
      for (const field of rest(hostFields, known.host))
        expect(create(within({ [field]: value })), field).toEqual(refusal);
      for (const field of rest(mountFields, known.mount))
        expect(create(mounted({ [field]: value })), field).toEqual(refusal);
    }
    expect(create(mounted({}))).not.toHaveProperty('refusal');
  });

  it('rejects its own fields in other letter cases, which Docker would accept', () => {
    // Go folds the long s and the Kelvin sign to s and k as well.
    const folds = [
      (field: string) => field.toLowerCase(),
      (field: string) => field.toUpperCase(),
      (field: string) => field.replace(/s/i, '\u017f'),
      (field: string) => field.replace(/k/i, '\u212a'),
    ];
    for (const fold of folds) {
      for (const field of known.container.filter((own) => fold(own) !== own)) {
        expect(create({ ...base, [fold(field)]: base[field] ?? ['x'] }), fold(field)).toEqual(refusal);
      }
      for (const field of known.host.filter((own) => fold(own) !== own)) {
        expect(create(within({ [fold(field)]: base.HostConfig[field] ?? 1 })), fold(field)).toEqual(refusal);
      }
    }
  });

  it('rejects a container without a field that confines it', () => {
    for (const field of known.container.filter((own) => own !== 'Entrypoint')) {
      expect(create(Object.fromEntries(Object.entries(base).filter(([own]) => own !== field))), field).toEqual(refusal);
    }
    const needed = ['NetworkMode', 'RestartPolicy', 'Init', 'IpcMode', 'SecurityOpt', 'CapDrop', 'LogConfig', 'Mounts'];
    for (const field of needed) {
      const HostConfig = Object.fromEntries(Object.entries(base.HostConfig).filter(([own]) => own !== field));
      expect(create({ ...base, HostConfig }), field).toEqual(refusal);
    }
  });

  it.each([
    ['the network of the machine', { NetworkMode: 'host' }],
    ['Docker’s own network', { NetworkMode: 'bridge' }],
    ['no network', { NetworkMode: 'none' }],
    ['the network of another container', { NetworkMode: 'container:postgres' }],
    ['a network of docker compose', { NetworkMode: 'headgate-x_stores' }],
    ['a network by its id', { NetworkMode: 'a'.repeat(64) }],
    ['the memory of the machine', { IpcMode: 'host' }],
    ['the memory of another container', { IpcMode: 'container:postgres' }],
    ['memory that others may have', { IpcMode: 'shareable' }],
    ['no profile of system calls', { SecurityOpt: ['no-new-privileges', 'seccomp=unconfined'] }],
    ['no profile of files', { SecurityOpt: ['apparmor=unconfined'] }],
    ['new privileges', { SecurityOpt: [] }],
    ['capabilities that stay', { CapDrop: ['NET_RAW'] }],
    ['a life of its own', { RestartPolicy: { Name: 'always' } }],
    ['a log that is sent away', { LogConfig: { Type: 'syslog', Config: { 'syslog-address': 'tcp://1.2.3.4' } } }],
    ['a log that fills the disk', { LogConfig: { Type: 'json-file', Config: {} } }],
    ['memory below nothing', { Memory: -1 }],
    ['more files than the machine allows', { Ulimits: [{ Name: 'nofile', Soft: 9, Hard: 9 }] }],
    ['a limit that processes may raise', { Ulimits: [{ Name: 'stack', Soft: 1, Hard: 2 }] }],
    ['CPUs that are no numbers', { CpusetCpus: '0;1' }],
    ['a NUMA node that is no number', { CpusetMems: '' }],
    ['a limit with another field', { Ulimits: [{ Name: 'stack', Soft: 1, Hard: 1, Extra: 1 }] }],
    ['devices of another driver', { DeviceRequests: [{ Driver: 'evil', DeviceIDs: ['a'], Capabilities: [['gpu']] }] }],
    ['devices of another kind', { DeviceRequests: [{ Driver: 'cdi', DeviceIDs: ['vendor.com/disk=all'] }] }],
    [
      'options of devices',
      { DeviceRequests: [{ Driver: 'nvidia', Count: -1, Capabilities: [['gpu']], Options: { a: 'b' } }] },
    ],
    [
      'other capabilities of devices',
      { DeviceRequests: [{ Driver: 'nvidia', Count: -1, Capabilities: [['display']] }] },
    ],
    ['a disk', { Devices: [device('/dev/sda')] }],
    ['a disk beside the files of ROCm', { Devices: [device('/dev/kfd'), device('/dev/sda')] }],
    ['the folder of all displays', { Devices: [device('/dev/kfd'), device('/dev/dri')] }],
    ['a display', { Devices: [device('/dev/kfd'), device('/dev/dri/card0')] }],
    ['a way out of the folder', { Devices: [device('/dev/kfd'), device('/dev/dri/renderD128/../../sda')] }],
    ['a GPU in another place', { Devices: [device('/dev/kfd', { PathInContainer: '/dev/sda' })] }],
    ['the right to make device files', { Devices: [device('/dev/kfd', { CgroupPermissions: 'rwm' })] }],
    ['another field of a device', { Devices: [device('/dev/kfd', { Extra: 1 })] }],
    ['published ports', { PortBindings: { '8000/tcp': [{ HostIp: '10.0.0.1', HostPort: '' }] } }],
  ])('rejects a container with %s', (_what, fields) => {
    expect(create(within(fields))).toEqual(refusal);
  });

  it.each([
    ['the root of the machine', { Type: 'bind', Source: '/' }],
    ['a folder beside an allowed one', { Type: 'bind', Source: '/srv/models-secret', ReadOnly: true }],
    ['a folder in an allowed one', { Type: 'bind', Source: '/srv/cache/below' }],
    ['the folder that holds an allowed one', { Type: 'bind', Source: '/srv' }],
    ['a way out of an allowed folder', { Type: 'bind', Source: '/srv/cache/../../etc' }],
    ['an allowed folder and a dot', { Type: 'bind', Source: '/srv/cache/.' }],
    ['an allowed folder, written otherwise', { Type: 'bind', Source: '/srv//cache' }],
    ['a folder that may only be read', { Type: 'bind', Source: '/srv/models' }],
    ['the Docker socket', { Type: 'bind', Source: '/var/run/docker.sock' }],
    ['a foreign volume', { Source: 'shop_db' }],
    ['a volume in other letters', { Source: 'HF-CACHE' }],
    ['a volume without a name', { Source: '' }],
    ['a volume that may only be read', { Source: 'weights' }],
    ['a volume that is a folder', { Source: '/srv/cache' }],
    ['a folder that is a volume', { Type: 'bind', Source: 'hf-cache' }],
    [
      'a volume from a driver',
      { VolumeOptions: { DriverConfig: { Name: 'local', Options: { o: 'bind', device: '/' } } } },
    ],
    ['a part of a volume', { VolumeOptions: { Subpath: 'a' } }],
    [
      'a folder that is shared both ways',
      { Type: 'bind', Source: '/srv/cache', BindOptions: { Propagation: 'rshared' } },
    ],
    ['memory', { Type: 'tmpfs', Source: '' }],
    ['an image', { Type: 'image', Source: image }],
    ['a pipe', { Type: 'npipe' }],
    ['the cluster', { Type: 'cluster' }],
    ['a target that leads elsewhere', { Target: '/x/../../y' }],
    ['a target that is everything', { Target: '/' }],
    ['a target that is no path', { Target: 'x' }],
    ['no word on reading', { ReadOnly: undefined }],
  ])('rejects a mount of %s', (_what, fields) => {
    expect(create(mounted(fields))).toEqual(refusal);
  });

  it.each([
    ['no label', {}],
    ['another value of our label', { 'headgate.managed': 'false' }],
    ['the label of a gateway', { 'headgate.managed': 'true', 'headgate.gateway': 'true' }],
    ['the label of a probe', { 'headgate.managed': 'true', 'headgate.probe': 'true' }],
    ['a label that proxies obey', { 'headgate.managed': 'true', 'traefik.enable': 'true' }],
    ['a label that docker compose obeys', { 'headgate.managed': 'true', 'com.docker.compose.project': 'shop' }],
  ])('rejects the labels of a container with %s', (_what, Labels) => {
    expect(create({ ...base, Labels })).toEqual(refusal);
  });

  it.each([
    'NVIDIA_MIG_CONFIG_DEVICES=all',
    'NVIDIA_MOFED=enabled',
    'NVIDIA_VISIBLE_DEVICES=vendor.com/disk=all',
    'NVIDIA_VISIBLE_DEVICES=0,/dev/sda',
    'no name',
    '=a',
    'A=\0',
  ])('rejects the variable %j', (entry) => {
    expect(create({ ...base, Env: [entry] })).toEqual(refusal);
  });

  it('rejects a GPU probe that does anything else', () => {
    const probe = {
      Image: image,
      Entrypoint: ['nvidia-smi'],
      Cmd: ['--query-compute-apps=gpu_uuid,pid,process_name', '--format=csv,noheader,nounits'],
      Env: ['NVIDIA_VISIBLE_DEVICES=all', 'NVIDIA_DRIVER_CAPABILITIES=utility'],
      Labels: { 'headgate.managed': 'true', 'headgate.fleet': 'f', 'headgate.probe': 'true' },
      NetworkDisabled: true,
      Healthcheck: { Test: ['NONE'] },
      HostConfig: { AutoRemove: true, NetworkMode: 'none', SecurityOpt: ['no-new-privileges'], PidMode: 'host' },
    };
    const url = '/v1.41/containers/create?name=headgate-probe-1-abc-1';
    const isRefused = (body: object) => expect(ask('POST', url, body)).toEqual(refusal);
    expect(bodyOf(ask('POST', url, probe))).toEqual(probe);
    expect(ask('POST', url, probe)).toMatchObject({ targets: [] });
    expect(bodyOf(ask('POST', url, { ...probe, Cmd: ['-L'] }))).toEqual({ ...probe, Cmd: ['-L'] });
    isRefused({ ...probe, Cmd: ['-L', '--filename=/x'] });
    isRefused({ ...probe, Entrypoint: ['sh'] });
    isRefused({ ...probe, entrypoint: ['sh'] });
    isRefused({ ...probe, Cmd: ['--id=0', '--gpu-reset'] });
    isRefused({ ...probe, Cmd: [...probe.Cmd, '--filename=/x'] });
    isRefused({ ...probe, Env: ['LD_PRELOAD=/x'] });
    isRefused({ ...probe, NetworkDisabled: false });
    for (const more of [{ Mounts: [] }, { NetworkMode: 'host' }, { AutoRemove: false }, { PidMode: 'container:a' }]) {
      isRefused({ ...probe, HostConfig: { ...probe.HostConfig, ...more } });
    }
  });

  it('parses a body once: forwards the checked value of a repeated member', () => {
    const text = JSON.stringify(base).replace('{', '{"Image":"evil/miner","HostConfig":{"Privileged":true},');
    expect(bodyOf(create(text))).toEqual(base);
    expect(create(JSON.stringify(base).replace(/\}$/, ',"HostConfig":{"Privileged":true}}'))).toEqual(refusal);
  });

  it('forwards only known fields, for any change of a body', () => {
    const change = fc.record({
      at: fc.nat(400),
      with: fc.oneof(fc.string(), fc.json(), fc.constantFrom('"', '{', '}', ',')),
    });
    const text = JSON.stringify(within({ Mounts: [mount({})] }));
    const fields = [...known.container, 'HostConfig'];
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 3 }), (changes) => {
        const changed = changes.reduce(
          (whole, { at, with: more }) => whole.slice(0, at) + more + whole.slice(at),
          text,
        );
        const call = create(changed);
        if ('refusal' in call) return;
        const sent = JSON.parse(call.body ?? '') as { HostConfig: { Mounts: { Source: string }[] } };
        expect(fields).toEqual(expect.arrayContaining(Object.keys(sent)));
        expect(known.host).toEqual(expect.arrayContaining(Object.keys(sent.HostConfig)));
        for (const { Source: source } of sent.HostConfig.Mounts) expect(['hf-cache', 'weights']).toContain(source);
      }),
      { numRuns: 500, seed: 20_261_121 },
    );
  });

  it('forwards every container that the driver creates', () => {
    const volumes = [
      { source: '/srv/models', target: '/models', readOnly: true },
      { source: '/srv/cache', target: '/cache/', readOnly: false },
      { source: 'hf-cache', target: '/root/.cache/huggingface', readOnly: false },
      { source: 'weights', target: '/weights', readOnly: true },
    ];
    const gpus = { count: 2, memoryBytesMin: null, profile: null };
    const env = { NVIDIA_DRIVER_CAPABILITIES: 'all', HF_HUB_OFFLINE: '1', EMPTY: '', LINES: 'a\nb=c' };
    const all = [
      planned(),
      planned({
        driver: {
          volumes,
          env,
          entrypoint: ['/bin/sh'],
          memoryBytesMax: 2 ** 36,
          shmBytes: 2 ** 34,
          ulimits: { memlock: -1, stack: 2 ** 26 },
          cpuset: { cpus: '0-15,32-47', mems: '0' },
        },
      }),
      planned({ driver: { gpus }, gpuIds: ['GPU-a', 'GPU-b'], host: { gpuAccess: 'nvidia' } }),
      planned({ driver: { gpus }, gpuIds: ['all'], host: { gpuAccess: 'nvidia' } }),
      planned({ driver: { gpus }, gpuIds: ['GPU-a', 'amd.com/gpu=1'], host: { gpuAccess: 'cdi' } }),
      planned({ driver: { gpus }, gpuIds: ['intel.com/gpu=0000:03:00.0-0x56c0'], host: { gpuAccess: 'cdi' } }),
      planned({ driver: { gpus }, gpuIds: ['renderD128', 'renderD129'], host: { gpuAccess: 'rocm' } }),
      planned({ driver: { gpus }, gpuIds: ['GPU-a', 'MIG-b'], host: { gpuAccess: 'environment' } }),
    ];
    for (const body of all) expect(bodyOf(create(body))).toEqual(body);
    const trimmed = within({ Mounts: [mount({ Type: 'bind', Source: '/srv/cache/' })] });
    expect(bodyOf(create(trimmed))).toEqual(within({ Mounts: [mount({ Type: 'bind', Source: '/srv/cache' })] }));
  });

  it('forwards a published port when allowed, on one address and a random port', () => {
    const published = planned({ host: { address: '10.0.0.11' } });
    expect(create(published)).toEqual(refusal);
    expect(bodyOf(create(published, { allowsPorts: true }))).toEqual(published);
    for (const wrong of [
      { HostIp: '0.0.0.0', HostPort: '' },
      { HostIp: '::', HostPort: '' },
      { HostIp: '0:0:0:0:0:0:0:0', HostPort: '' },
      { HostIp: '::ffff:0.0.0.0', HostPort: '' },
      { HostIp: '0', HostPort: '' },
      { HostIp: 'localhost', HostPort: '' },
      { HostIp: '', HostPort: '' },
      { HostIp: '10.0.0.11', HostPort: '443' },
    ]) {
      const body = within({ PortBindings: { '8000/tcp': [wrong] } }, published);
      expect(create(body, { allowsPorts: true }), JSON.stringify(wrong)).toEqual(refusal);
    }
  });
});
