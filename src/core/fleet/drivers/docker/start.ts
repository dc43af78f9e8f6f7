import { setTimeout as pause } from 'node:timers/promises';
import { DockerError, pullImage, type RegistryLogins } from '#base/docker/docker.ts';
import { containerSettings } from '#core/fleet/drivers/container-command.ts';
import { FenceLostError, requireFence } from '#core/fleet/drivers/fence.ts';
import { describeFullDisk, type ReadFreeBytes } from '#core/fleet/drivers/free-disk.ts';
import type { PendingStart } from '#core/fleet/drivers/pending-start.ts';
import {
  calledOffStart,
  failedStart,
  missingVariable,
  type ReplicaExit,
  startErrors,
} from '#core/fleet/drivers/replica-exit.ts';
import { type ContainerPlan, planContainer } from './container.ts';
import { labels } from './labels.ts';
import { ensureNetwork } from './network.ts';
import type { ObservedHost } from './observed-host.ts';
import { concernsLogin, refusedStart, startErrorCode } from './start-error-code.ts';

/** A replica whose container is being created and started, or whose start has failed. */
export interface Launch extends PendingStart {
  readonly cancel: AbortController;
  progress: string;
  /** Counts reports of the image pull. */
  reports: number;
  exit: ReplicaExit | null;
  /** Resolves once the container runs or the start has failed; never rejects. */
  done: Promise<void>;
}

export interface LaunchOptions {
  readonly host: ObservedHost;
  readonly fleetId: string;
  readonly fleetSecret: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly logins: RegistryLogins;
  /** Serializes work on the same engine's network. */
  readonly exclusively: <T>(engineId: string, work: () => Promise<T>) => Promise<T>;
  readonly onProgress: () => void;
  readonly readFreeBytes?: ReadFreeBytes | undefined;
}

/** All attempts together last longer than Docker needs to create a container. */
const makeAttemptsMax = 300;
const makeRetryMs = 100;

class Cancelled extends Error {}

/** Pulls the image, then creates and starts the container. @returns the failure, or null once the container runs */
export async function launch(started: Launch, options: LaunchOptions): Promise<ReplicaExit | null> {
  const { request, cancel } = started;
  const { host, fleetId, fleetSecret, env, exclusively } = options;
  const planned = planContainer({
    request,
    host: host.settings,
    gpuAccess: host.gpuAccess(),
    fleetId,
    fleetSecret,
    env,
  });
  if (!planned.ok) return missingVariable(planned.missing);
  const refusal = host.refusal();
  if (refusal !== null) return failedStart(startErrors.hostUnreachable, refusal);
  let step: 'image' | 'container' = 'image';
  try {
    const failed = await loadImage(started, options);
    if (failed !== null) return failed;
    step = 'container';
    await exclusively(request.spec.engineId, async () => {
      if (cancel.signal.aborted) throw new Cancelled();
      await makeContainer(started, options, planned.plan);
    });
    return null;
  } catch (error) {
    if (error instanceof Cancelled || cancel.signal.aborted) return calledOffStart(null);
    if (error instanceof FenceLostError) return calledOffStart(startErrors.fenceLost);
    return refusedStart(error, step);
  }
}

/** @returns the failure, or null once the image exists */
async function loadImage(
  started: Launch,
  { host, logins, onProgress, readFreeBytes }: LaunchOptions,
): Promise<ReplicaExit | null> {
  const { api } = host;
  const { signal } = started.cancel;
  const { image } = containerSettings(started.request.spec.definition);
  if (await api.hasImage(image)) return null;
  const folder = host.imagesFolder();
  const fullDisk = folder === null ? null : await describeFullDisk(folder, readFreeBytes);
  if (fullDisk !== null) return failedStart('ENOSPC', fullDisk);
  const { login, remark, isUnusable } = await logins.find(image);
  const progressed = (percent: number): void => {
    started.reports += 1;
    const progress = `pulling ${image} ${percent} %`;
    if (progress === started.progress) return;
    started.progress = progress;
    onProgress();
  };
  try {
    await pullImage({ api, reference: image, login, signal, onProgress: progressed });
    return null;
  } catch (error) {
    if (!(error instanceof DockerError) || signal.aborted) throw error;
    const code = startErrorCode(error, 'image');
    const isAbout = concernsLogin(error.reason) || (isUnusable && code === startErrors.imageNotFound);
    return failedStart(code, isAbout ? `${remark} ${error.reason}` : error.reason);
  }
}

async function makeContainer(started: Launch, options: LaunchOptions, plan: ContainerPlan): Promise<void> {
  const { host, fleetId } = options;
  const { fence, spec } = started.request;
  started.progress = 'creating the container';
  for (let attempt = 1; ; attempt += 1) {
    await ensureNetwork({ api: host.api, fleetId, engineId: spec.engineId }, fence);
    try {
      const container = await createOrFind(started, options, plan);
      started.progress = 'starting the container';
      await assertWanted(started);
      await host.api.start(container);
      return;
    } catch (error) {
      if (!isBeingMade(error) || attempt === makeAttemptsMax) throw error;
    }
    await pause(makeRetryMs);
  }
}

/** Creates the container, or finds one of the same name: the name is derived from the replica's id. */
async function createOrFind(
  started: Launch,
  { host: { api }, fleetId }: LaunchOptions,
  { name, body }: ContainerPlan,
): Promise<string> {
  await assertWanted(started);
  try {
    return await api.create(name, body);
  } catch (error) {
    if (!isBeingMade(error)) throw error;
    const [found] = await api.list([`${labels.fleet}=${fleetId}`, `${labels.replica}=${started.request.replicaId}`]);
    if (found === undefined) throw error;
    return found.Id;
  }
}

async function assertWanted({ request: { fence }, cancel }: Launch): Promise<void> {
  if (cancel.signal.aborted) throw new Cancelled();
  await requireFence(fence);
}

/**
 * True if another call may be creating this container or its network. Docker first reserves a container's name, then
 * lists the container, and knows it by its id only once its volumes are filled; if that fails, the name is free again.
 */
function isBeingMade(error: unknown): boolean {
  if (!(error instanceof DockerError)) return false;
  const { call, status, reason } = error;
  if (/^network \S+ is ambiguous/.test(reason)) return call === 'create' || call === 'start';
  return call === 'create' ? status === 409 : call === 'start' && status === 404 && /no such container/i.test(reason);
}
