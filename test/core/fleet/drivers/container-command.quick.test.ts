import { describe, expect, it } from 'vitest';
import { DockerError } from '#base/docker/api.ts';
import { notePullLine, percentOf } from '#base/docker/images.ts';
import { demultiplex } from '#base/docker/logs.ts';
import type { ContainerDriverSettings, EngineDefinition, LoraAdapter } from '#core/catalog/catalog.ts';
import {
  containerArguments,
  containerEnvironment,
  containerShmBytes,
  containerSpecHash,
} from '#core/fleet/drivers/container-command.ts';
import { gpuSettings } from '#core/fleet/drivers/docker/container.ts';
import { startErrorCode } from '#core/fleet/drivers/docker/start-error-code.ts';
import { gpusOfInfo } from '#core/fleet/drivers/docker/gpus.ts';
import { containerName, readMarks } from '#core/fleet/drivers/docker/labels.ts';
import { containerEngine } from '#test/docker/docker-drivers.ts';

const gpus = { count: 2, memoryBytesMin: null, profile: null };

function argumentsOf(driver: Partial<ContainerDriverSettings>, over: Partial<EngineDefinition> = {}): string {
  return containerArguments(containerEngine(driver, over)).join(' ');
}

describe('container arguments', () => {
  it('stay unchanged for an engine that is not vLLM', () => {
    expect(argumentsOf({ args: ['serve'], gpus }, { kind: 'openai' })).toBe('serve');
  });

  it('keep the arguments of the engine file', () => {
    const own = ['m', '--served-model-name=chat', '--no-enable-prompt-tokens-details', '-tp', '1', '--port', '9000'];
    expect(argumentsOf({ args: own, gpus, port: 9000 })).toBe(
      `${own.join(' ')} --max-model-len 1024 --enable-force-include-usage`,
    );
  });

  it('add served names, usage, port and tensor parallelism that the engine file omits', () => {
    expect(argumentsOf({ args: ['m'], gpus, port: 9000 })).toBe(
      'm --served-model-name chat Chat acme/chat --max-model-len 1024 --enable-force-include-usage ' +
        '--enable-prompt-tokens-details --port 9000 --tensor-parallel-size 2',
    );
  });
});

describe('the media domains of vLLM in a container', () => {
  it('come from media_domains in the engine file and are part of the spec hash', () => {
    const mediaDomains = ['a.example.org', 'b.example.org'];
    expect(argumentsOf({ args: ['m'] }, { mediaDomains })).toContain(
      '--allowed-media-domains a.example.org b.example.org',
    );
    expect(argumentsOf({ args: ['m'] })).not.toContain('--allowed-media-domains');
    const hash = (domains: string[]) => containerSpecHash(containerEngine({}, { mediaDomains: domains }), {}, 'secret');
    expect(hash(mediaDomains)).not.toBe(hash([]));
  });
});

describe('LoRA adapters in a container', () => {
  const prices = { pricing: null, flexPricing: null };
  const names = { aliases: [], huggingFaceId: null, ownedBy: 'acme', upstreamModel: null };
  const adapter = (id: string, path: string): LoraAdapter => ({
    id,
    name: id,
    path,
    ...names,
    ...prices,
    fallbacks: [],
  });
  const lora = [adapter('a', '/models/a'), adapter('b', 'acme/b-lora')];

  it('passes LoRA adapters to vLLM by id, with --max-loras and --max-lora-rank where set', () => {
    const words = argumentsOf({ args: ['m'] }, { lora, lorasMax: 2, loraRankMax: 64 });
    expect(words).toContain('--enable-lora --lora-modules a=/models/a b=acme/b-lora --max-loras 2 --max-lora-rank 64');
    expect(argumentsOf({ args: ['m', '--enable-lora'] }, { lora })).toMatch(/^m --enable-lora (?!.*--enable-lora)/);
    expect(argumentsOf({ args: ['m'] })).not.toContain('lora');
  });

  it("passes the limits of vLLM's queue where the file sets them", () => {
    const words = argumentsOf({ args: ['m'] }, { queuedRequestsMax: 8, queuedTokensMax: 20_000 });
    expect(words).toContain('--max-num-queued-reqs 8 --max-num-queued-tokens 20000');
    expect(argumentsOf({ args: ['m'] })).not.toContain('queued');
  });

  it('replaces the container when adapters change, but not when only their names or owners change', () => {
    const hash = (adapters: readonly LoraAdapter[]) =>
      containerSpecHash(containerEngine({}, { lora: adapters }), {}, 'secret');
    expect(new Set([hash(lora), hash(lora.slice(1)), hash([])]).size).toBe(3);
    expect(hash(lora.map((one) => ({ ...one, name: 'Other', ownedBy: 'us' })))).toBe(hash(lora));
  });
});

describe('container environment', () => {
  it("removes VLLM_SERVER_DEV_MODE and sets the gateway's API key when others can connect", () => {
    const definition = containerEngine({ env: { VLLM_SERVER_DEV_MODE: '1', VLLM_API_KEY: 'mine' } });
    const filled = containerEnvironment({ definition, env: {}, apiKey: 'key', isPrivate: false });
    expect(filled).toEqual({
      ok: true,
      env: {
        VLLM_API_KEY: 'key',
        VLLM_NO_USAGE_STATS: '1',
        DO_NOT_TRACK: '1',
        VLLM_MEDIA_URL_ALLOW_REDIRECTS: '0',
      },
    });
  });

  it('sets VLLM_MEDIA_URL_ALLOW_REDIRECTS to 0 unless the engine file sets it', () => {
    const environment = (env: Record<string, string>) =>
      containerEnvironment({ definition: containerEngine({ env }), env: {}, apiKey: 'key', isPrivate: true });
    expect(environment({})).toMatchObject({ env: { VLLM_MEDIA_URL_ALLOW_REDIRECTS: '0' } });
    const own = { VLLM_MEDIA_URL_ALLOW_REDIRECTS: '1' };
    expect(environment(own)).toMatchObject({ env: own });
  });

  it('names the variable whose value is not set', () => {
    const definition = containerEngine({ env: { HF_TOKEN: '${TOKEN}' } });
    expect(containerEnvironment({ definition, env: {}, apiKey: '', isPrivate: true })).toEqual({
      ok: false,
      missing: 'HF_TOKEN',
    });
  });
});

describe('a container', () => {
  it('gets 16 GiB of shared memory for several GPUs unless the engine file sets shm_size', () => {
    expect(containerShmBytes(containerEngine())).toBeNull();
    expect(containerShmBytes(containerEngine({ gpus }))).toBe(16 * 2 ** 30);
    expect(containerShmBytes(containerEngine({ gpus, shmBytes: 1 }))).toBe(1);
  });

  it('has another spec hash when image, arguments, GPUs, memory or port change, but not when times change', () => {
    const hash = (driver: Partial<ContainerDriverSettings>, env = {}) =>
      containerSpecHash(containerEngine(driver), env, 'secret');
    expect(hash({ idleMs: 1, drainMs: 1, hosts: ['a'] })).toBe(hash({}));
    const changed = [
      { image: 'other:1' },
      { args: [] },
      { gpus },
      { shmBytes: 1 },
      { memoryBytesMax: 1 },
      { ulimits: { stack: 1 } },
      { cpuset: { cpus: '0' } },
      { cpuset: { mems: '0' } },
      { port: 1 },
    ];
    expect(new Set([{}, ...changed].map((driver) => hash(driver))).size).toBe(10);
    const secret = { env: { HF_TOKEN: '${TOKEN}' } };
    expect(hash(secret, { TOKEN: 'a' })).not.toBe(hash(secret, { TOKEN: 'b' }));
  });

  it('has a valid Docker name that is unique per replica and fleet', () => {
    expect(containerName('f', 'Qwen/Qwen3-0.6B:fast', 'r')).toMatch(/^headgate-qwen-qwen3-0-6b-fast-[0-9a-f]{10}$/);
    expect(containerName('f', '___', 'r')).toMatch(/^headgate-engine-[0-9a-f]{10}$/);
    expect(containerName('f', 'a', 'r')).not.toBe(containerName('g', 'a', 'r'));
  });

  it('is not adopted when its labels lack those of a replica', () => {
    expect(readMarks({ 'headgate.managed': 'true', 'headgate.engine': 'chat' })).toBeNull();
  });
});

describe('container GPUs', () => {
  it('passes GPUs by device request, CDI or NVIDIA_VISIBLE_DEVICES', () => {
    expect(gpuSettings('nvidia', ['GPU-1'])).toEqual({
      env: {},
      hostConfig: { DeviceRequests: [{ Driver: 'nvidia', DeviceIDs: ['GPU-1'], Capabilities: [['gpu']] }] },
    });
    expect(gpuSettings('cdi', ['GPU-1', 'amd.com/gpu=0']).hostConfig).toEqual({
      DeviceRequests: [{ Driver: 'cdi', DeviceIDs: ['nvidia.com/gpu=GPU-1', 'amd.com/gpu=0'] }],
    });
    // CDI devices of AMD and Intel do not keep nvidia's runtime from giving all GPUs to an image that requests them.
    expect(gpuSettings('cdi', ['amd.com/gpu=0']).env).toEqual({ NVIDIA_VISIBLE_DEVICES: 'void' });
    expect(gpuSettings('environment', ['GPU-1', 'GPU-2']).env).toEqual({ NVIDIA_VISIBLE_DEVICES: 'GPU-1,GPU-2' });
    expect(gpuSettings('nvidia', []).env).toEqual({ NVIDIA_VISIBLE_DEVICES: 'void' });
  });

  it('reads GPUs from discovered devices, generic resources and runtimes of Docker info', () => {
    const devices = ['0', 'GPU-1', 'all'].map((id) => ({ Source: 'cdi', ID: `nvidia.com/gpu=${id}` }));
    const gpu = { id: 'GPU-1', memoryBytes: null, profile: null };
    expect(gpusOfInfo({ DiscoveredDevices: devices }, null)).toEqual({ access: 'cdi', gpus: [gpu], mayHaveMore: true });
    const others = ['nvidia.com/gpu=GPU-1', 'amd.com/gpu=all', 'amd.com/gpu=0', 'intel.com/gpu=0000:03:00.0-0x56c0'];
    const discovered = (ids: string[]) => ({ DiscoveredDevices: ids.map((ID) => ({ Source: 'cdi', ID })) });
    const ofOthers = [
      { id: 'amd.com/gpu=0', memoryBytes: null, profile: 'amd.com/gpu' },
      { id: 'intel.com/gpu=0000:03:00.0-0x56c0', memoryBytes: null, profile: 'intel.com/gpu' },
    ];
    expect(gpusOfInfo(discovered(others), null)).toEqual({
      access: 'cdi',
      gpus: [gpu, ...ofOthers],
      mayHaveMore: true,
    });
    const withoutNvidia = { access: 'cdi', gpus: ofOthers, mayHaveMore: false };
    expect(gpusOfInfo(discovered(others.slice(1)), null)).toEqual(withoutNvidia);
    expect(gpusOfInfo(discovered(others.slice(1)), 'cdi')).toEqual(withoutNvidia);
    expect(gpusOfInfo(discovered(['other.com/gpu=0', 'amd.com/disk=0']), null).gpus).toEqual([]);
    const named = [{ NamedResourceSpec: { Kind: 'NVIDIA-GPU', Value: 'GPU-1' } }];
    expect(gpusOfInfo({ GenericResources: named, Runtimes: { nvidia: {} } }, null)).toEqual({
      access: 'nvidia',
      gpus: [gpu],
      mayHaveMore: true,
    });
    expect(gpusOfInfo({ Runtimes: { runc: {} } }, null)).toEqual({ access: 'nvidia', gpus: [], mayHaveMore: false });
  });
});

describe("a Docker engine's answer", () => {
  it.each([
    ['image', 404, 'manifest for a/b:c not found: manifest unknown: manifest unknown', 'IMAGE_NOT_FOUND'],
    [
      'image',
      null,
      "pull access denied for a/b, repository does not exist or may require 'docker login'",
      'IMAGE_NOT_FOUND',
    ],
    [
      'image',
      null,
      'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host',
      'IMAGE_PULL_FAILED',
    ],
    ['image', null, 'write /var/lib/docker/tmp/x: no space left on device', 'ENOSPC'],
    ['container', 500, 'could not select device driver "nvidia" with capabilities: [[gpu]]', 'NO_SUCH_DEVICE'],
    ['container', 500, 'CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=GPU-9', 'NO_SUCH_DEVICE'],
    [
      'container',
      500,
      'error gathering device information while adding custom device "/dev/kfd": no such file or directory',
      'NO_SUCH_DEVICE',
    ],
    ['container', 500, 'nvidia-container-cli: device error: GPU-9: unknown device: unknown', 'NO_SUCH_DEVICE'],
    [
      'container',
      500,
      'driver failed programming external connectivity: Bind for 10.0.0.5:80 failed: port is already allocated',
      'EADDRINUSE',
    ],
    ['container', 400, 'invalid mount config for type "bind": bind source path does not exist: /x', 'MOUNT'],
    [
      'container',
      500,
      'could not find an available, non-overlapping IPv4 address pool among the defaults',
      'NETWORK_POOL_EMPTY',
    ],
    ['container', 400, 'Minimum memory limit allowed is 6MB', 'CONTAINER_REFUSED'],
  ] as const)('maps an error while creating the %s (%s): %s', (step, status, reason, code) => {
    expect(startErrorCode(new DockerError(step === 'image' ? 'pull' : 'start', status, reason), step)).toBe(code);
  });

  it('sums pull progress over the layers', () => {
    const layers = new Map();
    const note = (line: object): string | null => notePullLine(layers, JSON.stringify(line));
    expect(percentOf(layers)).toBe(0);
    note({ id: 'a', status: 'Pulling fs layer' });
    note({ id: 'a', status: 'Downloading', progressDetail: { current: 50, total: 100 } });
    note({ id: 'b', status: 'Downloading', progressDetail: { current: 0, total: 300 } });
    expect(percentOf(layers)).toBe(12);
    note({ id: 'b', status: 'Download complete', progressDetail: {} });
    note({ id: 'a', status: 'Pull complete' });
    expect(percentOf(layers)).toBe(100);
    expect(note({ error: 'toomanyrequests', errorDetail: {} })).toBe('toomanyrequests');
    expect(notePullLine(layers, 'not JSON')).toBeNull();
  });

  it("decodes the frames of a container's output to text", () => {
    const frame = (source: number, text: string): Buffer => {
      const head = Buffer.alloc(8);
      head.writeUInt8(source, 0);
      head.writeUInt32BE(Buffer.byteLength(text), 4);
      return Buffer.concat([head, Buffer.from(text)]);
    };
    expect(demultiplex(Buffer.concat([frame(1, 'a\n'), frame(2, 'ü\n')]))).toBe('a\nü\n');
    expect(demultiplex(frame(1, 'cut off').subarray(0, 10))).toBe('cu');
  });
});
