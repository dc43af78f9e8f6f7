import { type DockerApi, DockerError, hideLogin, type RegistryLogins } from '#base/docker/docker.ts';
import { containerSettings } from '#core/fleet/drivers/container-command.ts';
import { labels, refusedStart } from '#core/fleet/drivers/docker/docker.ts';
import { type Fence, FenceLostError, requireFence } from '#core/fleet/drivers/fence.ts';
import { missingVariable, type ReplicaExit } from '#core/fleet/drivers/replica-exit.ts';
import { overlayName, planService, type ServicePlan, type ServicePlanOptions } from './service.ts';

export interface ServiceStartOptions extends ServicePlanOptions {
  readonly api: DockerApi;
  readonly logins: RegistryLogins;
}

/**
 * Creates the service of a start request with its secrets and its network. Repeating the call finds the same ones.
 * @returns the failure, or null once the swarm has the service
 * @throws FenceLostError
 */
export async function startService(options: ServiceStartOptions): Promise<ReplicaExit | null> {
  const planned = planService(options);
  if (!planned.ok) return missingVariable(planned.missing);
  try {
    await makeService(options, planned.plan);
    return null;
  } catch (error) {
    if (error instanceof FenceLostError) throw error;
    return refusedStart(error, 'container');
  }
}

async function makeService({ api, request, fleetId, logins }: ServiceStartOptions, plan: ServicePlan): Promise<void> {
  const { fence, spec } = request;
  await ensureOverlay({ api, fleetId, engineId: spec.engineId }, fence);
  const secretIds: string[] = [];
  for (const { name, value } of plan.secrets) {
    await requireFence(fence);
    secretIds.push(await api.swarm.createSecret(name, value, plan.labels));
  }
  const { image } = containerSettings(spec.definition);
  const entrypoint = await api.swarm.imageEntrypoint(image);
  const { login } = await logins.find(image);
  await requireFence(fence);
  try {
    await api.swarm.createService(plan.body(secretIds, entrypoint), login);
  } catch (error) {
    if (!(error instanceof DockerError)) throw error;
    throw new DockerError(error.call, error.status, hideLogin(error.reason, login));
  }
}

export interface OverlayOptions {
  readonly api: DockerApi;
  readonly fleetId: string;
  readonly engineId: string;
}

async function ensureOverlay({ api, fleetId, engineId }: OverlayOptions, fence: Fence): Promise<void> {
  const name = overlayName(fleetId, engineId);
  if ((await api.inspectNetwork(name)) !== null) return;
  await requireFence(fence);
  const marks = { [labels.managed]: 'true', [labels.fleet]: fleetId, [labels.engine]: engineId };
  try {
    await api.swarm.createOverlay(name, marks);
  } catch (error) {
    // Another call created it first.
    if (!(error instanceof DockerError) || error.status !== 409) throw error;
  }
}

/** Removes the remains of a replica: its service, then its secrets. */
export async function removeReplica(
  { api, fleetId, replicaId }: { api: DockerApi; fleetId: string; replicaId: string },
  fence: Fence,
): Promise<void> {
  const wanted = [`${labels.fleet}=${fleetId}`, `${labels.replica}=${replicaId}`];
  for (const { ID: id } of await api.swarm.listServices(wanted)) {
    await requireFence(fence);
    await api.swarm.removeService(id);
  }
  await removeSecrets(api, wanted, fence);
}

/** Removes secrets that interrupted starts of an engine left: those of replicas without a service. */
export async function removeStraySecrets({ api, fleetId, engineId }: OverlayOptions, fence: Fence): Promise<void> {
  const wanted = [`${labels.fleet}=${fleetId}`, `${labels.engine}=${engineId}`];
  const secrets = await api.swarm.listSecrets(wanted);
  // Services are read after the secrets, so that a service created meanwhile keeps its secrets.
  const services = await api.swarm.listServices(wanted);
  const replicas = new Set(services.map(({ Spec: { Labels: own } }) => own?.[labels.replica]));
  for (const { ID: id, Spec: spec } of secrets) {
    if (replicas.has(spec.Labels?.[labels.replica])) continue;
    await requireFence(fence);
    await api.swarm.removeSecret(id);
  }
}

/** Removes the secrets that have all of these labels. No service may use them any more. */
export async function removeSecrets(api: DockerApi, wanted: readonly string[], fence: Fence): Promise<void> {
  for (const { ID: id } of await api.swarm.listSecrets(wanted)) {
    await requireFence(fence);
    await api.swarm.removeSecret(id);
  }
}
