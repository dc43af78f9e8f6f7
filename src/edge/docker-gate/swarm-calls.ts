import type { z } from 'zod';
import { count, flag, id, network, type Rule, secret, service, type Target } from './rule.ts';
import { secretBody, serviceBody, serviceEndBody } from './swarm-bodies.ts';

function createTargets(body: unknown, prefix: string): readonly Target[] {
  const { ContainerSpec: container, Networks: networks } = (body as z.output<ReturnType<typeof serviceBody>>)
    .TaskTemplate;
  return [
    ...networks.flatMap(({ Target: name }, index) =>
      network(name, prefix).map((target) => ({ ...target, place: ['TaskTemplate', 'Networks', index, 'Target'] })),
    ),
    ...(container.Secrets ?? []).flatMap(({ SecretID: secretId }, index) =>
      secret(secretId, prefix).map((target) => ({
        ...target,
        place: ['TaskTemplate', 'ContainerSpec', 'Secrets', index, 'SecretID'],
      })),
    ),
  ];
}

function endTargets(body: unknown, prefix: string, name: string): readonly Target[] {
  const spec = body as z.output<ReturnType<typeof serviceEndBody>>;
  return service(name, prefix).map((target) => ({ ...target, spec }));
}

/**
 * Calls that only the swarm driver makes. It shares those for networks, images and the version with the docker driver.
 * Nodes have no label of Headgate, so only their list is readable, and nothing else of nodes or of the swarm.
 */
export const swarmRules: readonly Rule[] = [
  { method: 'GET', path: /^\/services$/, filters: [] },
  { method: 'GET', path: /^\/tasks$/, filters: [] },
  { method: 'GET', path: /^\/nodes$/ },
  { method: 'GET', path: /^\/secrets$/, filters: ['name'] },
  {
    method: 'POST',
    path: /^\/services\/create$/,
    body: serviceBody,
    bodyTargets: createTargets,
    // The managers keep the credentials, so that nodes can pull.
    passesRegistryAuth: true,
  },
  {
    method: 'POST',
    path: new RegExp(`^/services/${id}/update$`),
    query: { version: count },
    body: serviceEndBody,
    bodyTargets: endTargets,
  },
  { method: 'DELETE', path: new RegExp(`^/services/${id}$`), targets: service },
  {
    method: 'GET',
    path: new RegExp(`^/services/${id}/logs$`),
    query: { follow: flag, stdout: flag, stderr: flag, tail: count },
    targets: service,
  },
  { method: 'POST', path: /^\/secrets\/create$/, body: secretBody },
  { method: 'DELETE', path: new RegExp(`^/secrets/${id}$`), targets: secret },
];
