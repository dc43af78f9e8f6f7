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
 * Makes the service of a start request with its secrets and its network; all of them are the same ones when it is done
 * again.
 * @returns how it failed, or null when the swarm has the service
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
    // Somebody else was faster.
    if (!(error instanceof DockerError) || error.status !== 409) throw error;
  }
}

/** Removes what a replica leaves: its service, and then what only that used. */
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

/** Removes what starts of an engine left that were broken off: secrets of replicas that have no service. */
export async function removeStraySecrets({ api, fleetId, engineId }: OverlayOptions, fence: Fence): Promise<void> {
  const wanted = [`${labels.fleet}=${fleetId}`, `${labels.engine}=${engineId}`];
  const secrets = await api.swarm.listSecrets(wanted);
  // Services are read after the secrets: one that is made meanwhile keeps its own.
  const services = await api.swarm.listServices(wanted);
  const replicas = new Set(services.map(({ Spec: { Labels: own } }) => own?.[labels.replica]));
  for (const { ID: id, Spec: spec } of secrets) {
    if (replicas.has(spec.Labels?.[labels.replica])) continue;
    await requireFence(fence);
    await api.swarm.removeSecret(id);
  }
}

/** Removes the secrets that bear all of the labels, which no service may use any more. */
export async function removeSecrets(api: DockerApi, wanted: readonly string[], fence: Fence): Promise<void> {
  for (const { ID: id } of await api.swarm.listSecrets(wanted)) {
    await requireFence(fence);
    await api.swarm.removeSecret(id);
  }
}
