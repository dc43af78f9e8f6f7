import {
  demultiplex,
  type DockerApi,
  DockerError,
  type RegistryLogins,
  stderrStream,
  type SwarmNode,
  type SwarmService,
  type SwarmTask,
} from '#base/docker/docker.ts';
import { startErrorCode } from '#core/fleet/drivers/docker/docker.ts';
import { failedStart, type ReplicaExit, replicaExit, startErrors } from '#core/fleet/drivers/replica-exit.ts';

/** Determines how tasks ended, and which tasks can never start. */

export interface ServiceTask {
  readonly service: SwarmService;
  /** null if the service has no task yet, or none any more. */
  readonly task: SwarmTask | null;
  readonly nodes: readonly SwarmNode[];
}

export interface ExitSource {
  readonly api: DockerApi;
  readonly logins: RegistryLogins;
}

/** https://docs.docker.com/engine/swarm/how-swarm-mode-works/swarm-task-states/ */
const endedStates: ReadonlySet<string> = new Set(['complete', 'failed', 'shutdown', 'rejected', 'orphaned', 'remove']);
/** Texts of the executor of 20.10 to 29 for a container that was created and could not be started. */
const neverRanSigns = /^starting container failed|^failed to|create task|unable to start/i;
const logTailLines = 200;
const logTailCharsMax = 16_384;
const noSuitableNode = 'no suitable node';

/** True if the replica's service was asked to stop: it has zero replicas. */
export function isStopRequested({ Spec: { Mode: mode } }: SwarmService): boolean {
  return mode?.Replicated?.Replicas === 0;
}

/** True if the scheduler reports that suitable nodes exist and are full; such a task waits until one is free. */
export function lacksRoom({ Status: { State: state, Err: trouble } }: SwarmTask): boolean {
  return state === 'pending' && trouble.includes('insufficient resources');
}

/** Returns null while the task runs, or may still start. */
export async function exitOf(source: ExitSource, { service, task, nodes }: ServiceTask): Promise<ReplicaExit | null> {
  const stopRequested = isStopRequested(service);
  if (task === null) return stopRequested ? replicaExit({ stopRequested }) : null;
  const { State: state, Err: trouble } = task.Status;
  const node = nodes.find(({ ID: id }) => id === task.NodeID) ?? null;
  const isDown = node?.Status.State === 'down';
  if (endedStates.has(state)) return endOf(source, { service, task, readsLog: !isDown });
  if (isDown) {
    const name = node.Description?.Hostname ?? node.ID;
    return replicaExit({
      stopRequested,
      startErrorCode: startErrors.hostUnreachable,
      logTail: `The node ${name} is down.`,
    });
  }
  if (stopRequested || !neverFits(task, nodes)) return null;
  const lacking = resourcesOf(task).length > 0 ? startErrors.noSuchDevice : startErrors.noSuitableNode;
  return failedStart(lacking, `${state}: ${trouble}`);
}

interface Ended {
  readonly service: SwarmService;
  readonly task: SwarmTask;
  /** True if the task's node answers. */
  readonly readsLog: boolean;
}

async function endOf({ api, logins }: ExitSource, { service, task, readsLog }: Ended): Promise<ReplicaExit> {
  const { State: state, Err: trouble, ContainerStatus: container } = task.Status;
  const endMessage = trouble === '' ? '' : `${state}: ${trouble}`;
  const stopRequested = isStopRequested(service);
  const wasMade = (container?.ContainerID ?? '') !== '';
  if (!wasMade || state === 'rejected' || neverRanSigns.test(trouble)) {
    const startErrorCode = codeOf(trouble);
    if (startErrorCode !== startErrors.imageNotFound)
      return replicaExit({ stopRequested, startErrorCode, logTail: endMessage });
    // Nodes report only that they lack the image, whatever the registry said.
    const { remark } = await logins.find(service.Spec.TaskTemplate?.ContainerSpec?.Image ?? '');
    return replicaExit({ stopRequested, startErrorCode, logTail: `${remark} ${endMessage}` });
  }
  const output = readsLog ? await api.swarm.serviceLogTail(service.ID, logTailLines).catch(() => null) : null;
  return replicaExit({ stopRequested, exitCode: container?.ExitCode ?? null, ...tailsOf(output, endMessage) });
}

/** @param endMessage the swarm's message about the end */
function tailsOf(output: Buffer | null, endMessage: string): Pick<ReplicaExit, 'logTail' | 'errorTail'> {
  if (output === null) return { logTail: endMessage, errorTail: '' };
  const text = demultiplex(output).slice(-logTailCharsMax);
  const errorTail = demultiplex(output, stderrStream).slice(-logTailCharsMax);
  return { logTail: `${text}\n${endMessage}`.trim(), errorTail };
}

function codeOf(trouble: string): string {
  return trouble === '' ? startErrors.notStarted : startErrorCode(new DockerError('task', 400, trouble), 'container');
}

/** True if the scheduler has no node for the task, and none of the existing nodes would fit even if empty. */
function neverFits(task: SwarmTask, nodes: readonly SwarmNode[]): boolean {
  const { State: state, Err: trouble } = task.Status;
  if (state !== 'pending' || !trouble.startsWith(noSuitableNode)) return false;
  if (!lacksRoom(task)) return true;
  return !nodes.some((node) => resourcesOf(task).every(({ kind, count }) => countOf(node, kind) >= count));
}

function resourcesOf({ Spec: spec }: SwarmTask): { kind: string; count: number }[] {
  return (spec?.Resources?.Reservations?.GenericResources ?? []).flatMap(({ DiscreteResourceSpec: wanted }) =>
    wanted ? [{ kind: wanted.Kind, count: wanted.Value }] : [],
  );
}

/** Returns the resources of a node, free or not. */
function countOf({ Description: description, Status: { State: state } }: SwarmNode, kind: string): number {
  if (state !== 'ready') return 0;
  const all = description?.Resources?.GenericResources ?? [];
  const named = all.filter(({ NamedResourceSpec: found }) => found?.Kind === kind).length;
  return all.reduce((sum, { DiscreteResourceSpec: found }) => sum + (found?.Kind === kind ? found.Value : 0), named);
}
