import type { z } from 'zod';
import { id, managedLabel, network, type Rule, type Target } from './rule.ts';
import { secretBody, serviceBody, serviceEndBody } from './swarm-bodies.ts';

const service = (name: string, prefix: string): Target[] => [
  { path: `${prefix}/services/${name}`, labels: [managedLabel] },
];
const secret = (name: string, prefix: string): Target[] => [
  { path: `${prefix}/secrets/${name}`, labels: [managedLabel] },
];

function createTargets(body: unknown, prefix: string): readonly Target[] {
  const { ContainerSpec: container, Networks: networks } = (body as z.output<ReturnType<typeof serviceBody>>)
    .TaskTemplate;
  return [
    ...networks.flatMap(({ Target: name }) => network(name, prefix)),
    ...(container.Secrets ?? []).flatMap(({ SecretID: secretId }) => secret(secretId, prefix)),
  ];
}

function endTargets(body: unknown, prefix: string, name: string): readonly Target[] {
  const spec = body as z.output<ReturnType<typeof serviceEndBody>>;
  return service(name, prefix).map((target) => ({ ...target, spec }));
}

/**
 * Calls of the swarm driver beyond those of the docker driver, which share networks, images and the version. Nodes
 * cannot be told apart by labels of ours: their list is read, and nothing else of them or of the swarm itself.
 */
export const swarmRules: readonly Rule[] = [
  { method: 'GET', path: /^\/services$/, query: ['filters'], isFiltered: true },
  { method: 'GET', path: /^\/tasks$/, query: ['filters'], isFiltered: true },
  { method: 'GET', path: /^\/nodes$/ },
  { method: 'GET', path: /^\/secrets$/, query: ['filters'], isFiltered: true },
  {
    method: 'POST',
    path: /^\/services\/create$/,
    body: serviceBody,
    bodyTargets: createTargets,
    // The managers keep it, for the nodes to pull with.
    passesRegistryAuth: true,
  },
  {
    method: 'POST',
    path: new RegExp(`^/services/${id}/update$`),
    query: ['version'],
    body: serviceEndBody,
    bodyTargets: endTargets,
  },
  { method: 'DELETE', path: new RegExp(`^/services/${id}$`), targets: service },
  {
    method: 'GET',
    path: new RegExp(`^/services/${id}/logs$`),
    query: ['follow', 'stdout', 'stderr', 'tail'],
    targets: service,
  },
  { method: 'POST', path: /^\/secrets\/create$/, body: secretBody },
  { method: 'DELETE', path: new RegExp(`^/secrets/${id}$`), targets: secret },
];
