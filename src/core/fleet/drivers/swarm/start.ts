import { type DockerApi, DockerError, hideLogin, type RegistryLogins } from '#base/docker/docker.ts';
import { containerSettings } from '#core/fleet/drivers/container-command.ts';
import { labels, startErrorCode } from '#core/fleet/drivers/docker/docker.ts';
import type { Fence, ReplicaExit } from '#core/fleet/drivers/driver.ts';
import { missingVariableCode } from '#core/fleet/drivers/start-failure.ts';
import { overlayName, planService, type ServicePlan, type ServicePlanOptions } from './service.ts';

export interface ServiceStartOptions extends ServicePlanOptions {
  readonly api: DockerApi;
  readonly logins: RegistryLogins;
}

/** The right to change something is gone. */
export class FenceLost extends Error {
  constructor() {
    super('Another gateway leads.');
  }
}

export async function checkFence(fence: Fence): Promise<void> {
  if (!(await fence.holds())) throw new FenceLost();
}

/**
 * Makes the service of a start request with its secrets and its network; all of them are the same ones when it is done
 * again.
 * @returns how it failed, or null when the swarm has the service
 * @throws FenceLost
 */
export async function startService(options: ServiceStartOptions): Promise<ReplicaExit | null> {
  const planned = planService(options);
  if (!planned.ok) {
    return failedExit(missingVariableCode, `The variable ${planned.missing} refers to one that is not set.`);
  }
  try {
    await makeService(options, planned.plan);
    return null;
  } catch (error) {
    if (error instanceof FenceLost) throw error;
    return failedExit(startErrorCode(error, 'container'), error instanceof DockerError ? error.reason : String(error));
  }
}

async function makeService({ api, request, fleetId, logins }: ServiceStartOptions, plan: ServicePlan): Promise<void> {
  const { fence, spec } = request;
  await ensureOverlay({ api, fleetId, engineId: spec.engineId }, fence);
  const secretIds: string[] = [];
  for (const { name, value } of plan.secrets) {
    await checkFence(fence);
    secretIds.push(await api.swarm.createSecret(name, value, plan.labels));
  }
  const { image } = containerSettings(spec.definition);
  const entrypoint = await api.swarm.imageEntrypoint(image);
  const { login } = await logins.find(image);
  await checkFence(fence);
  try {
    await api.swarm.createService(plan.body(secretIds, entrypoint), login);
  } catch (error) {
    if (!(error instanceof DockerError)) throw error;
    throw new DockerError(error.call, error.status, hideLogin(error.reason, login));
  }
}

/** @param why for operators */
function failedExit(code: string, why: string): ReplicaExit {
  return { stopRequested: false, exitCode: null, signal: null, startErrorCode: code, oomKilled: false, logTail: why };
}

export interface OverlayOptions {
  readonly api: DockerApi;
  readonly fleetId: string;
  readonly engineId: string;
}

async function ensureOverlay({ api, fleetId, engineId }: OverlayOptions, fence: Fence): Promise<void> {
  const name = overlayName(fleetId, engineId);
  if ((await api.inspectNetwork(name)) !== null) return;
  await checkFence(fence);
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
    await checkFence(fence);
    await api.swarm.removeService(id);
  }
  await removeSecrets(api, wanted, fence);
}

/** Removes the secrets that bear all of the labels, which no service may use any more. */
export async function removeSecrets(api: DockerApi, wanted: readonly string[], fence: Fence): Promise<void> {
  for (const { ID: id } of await api.swarm.listSecrets(wanted)) {
    await checkFence(fence);
    await api.swarm.removeSecret(id);
  }
}
