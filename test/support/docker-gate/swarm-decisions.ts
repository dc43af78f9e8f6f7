import type { ContainerDriverSettings, SwarmSettings } from '#core/catalog/catalog.ts';
import { planService } from '#core/fleet/drivers/swarm/service.ts';
import { decide } from '#edge/docker-gate/calls.ts';
import { containerEngine, holding } from '#test/docker/docker-drivers.ts';

/** The decisions of the door to a manager of a swarm. */

export const policy = {
  images: ['vllm/*'],
  binds: [{ source: '/srv/models', isReadOnly: false }],
  volumes: [{ source: 'hf-cache', isReadOnly: false }],
  allowsPorts: false,
  allowsSwarm: true,
  runImages: [],
  runNetworks: [],
};

export function ask(method: string, url: string, body?: object, over: Partial<typeof policy> = {}) {
  const sent = body === undefined ? '' : JSON.stringify(body);
  return decide({ ...policy, ...over }, { method, url, body: sent });
}

export const secretIds = ['aaaaaaaaaaaaaaaaaaaaaaaaa', 'bbbbbbbbbbbbbbbbbbbbbbbbb'];

/** A service as the driver makes it. */
export function planned(driver: Partial<ContainerDriverSettings> = {}, over: Partial<SwarmSettings> = {}) {
  const docker = { type: 'unix', socketPath: '/var/run/docker.sock' } as const;
  const settings = {
    network: 'overlay',
    gpuResource: 'NVIDIA-GPU',
    secrets: 'files',
    isNamed: false,
    gates: null,
  } as const;
  const definition = containerEngine({ type: 'swarm', image: 'vllm/vllm-openai:v0.32.0', ...driver });
  const made = planService({
    request: {
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

export function serviceOf(...settings: Parameters<typeof planned>): ServiceBody {
  return planned(...settings).body(secretIds, ['vllm', 'serve']) as ServiceBody;
}

export const createService = (body: object, over: Partial<typeof policy> = {}) =>
  ask('POST', '/v1.41/services/create', body, over);
