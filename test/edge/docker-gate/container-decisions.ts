import { decide, type Policy } from '#edge/docker-gate/calls.ts';
import { plannedContainer, type PlannedOptions } from '#test/docker/planned-container.ts';

/** The door's decisions with a policy that allows a little of everything. */

export const policy: Policy = {
  images: ['vllm/*', 'nvidia/cuda:12*', `house/app:v1@sha256:${'a'.repeat(64)}`],
  binds: [
    { source: '/srv/models', isReadOnly: true },
    { source: '/srv/cache', isReadOnly: false },
  ],
  volumes: [
    { source: 'hf-cache', isReadOnly: false },
    { source: 'weights', isReadOnly: true },
  ],
  allowsPorts: false,
  allowsSwarm: false,
  runImages: [],
  runNetworks: [],
};

export const image = 'vllm/vllm-openai:v0.32.0';
/** Name of a replica, or of the network of an engine. */
export const ownName = 'headgate-chat-0123456789';

type Decision = ReturnType<typeof decide>;

export function ask(method: string, url: string, body?: object | string, over: Partial<Policy> = {}): Decision {
  const text = body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body);
  return decide({ ...policy, ...over }, { method, url, body: text });
}

export const createUrl = `/v1.41/containers/create?name=${ownName}`;

export function create(body: object | string, over: Partial<Policy> = {}): Decision {
  return ask('POST', createUrl, body, over);
}

/** The body of a container as the driver makes it. */
export function planned(options: PlannedOptions = {}) {
  return plannedContainer({ ...options, driver: { image, ...options.driver } }).body;
}

/** The forwarded body, or the refusal. */
export function bodyOf(call: Decision): unknown {
  return 'refusal' in call ? call : JSON.parse(call.body ?? 'null');
}
