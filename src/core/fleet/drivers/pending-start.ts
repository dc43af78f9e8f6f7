import { tcpEndpoint } from '#base/net/net.ts';
import { containerForcesUsage } from './container-command.ts';
import type { ObservedReplica, StartRequest } from './driver.ts';
import type { ReplicaExit } from './replica-exit.ts';

/** A start that is running, or that failed before a replica existed. */
export interface PendingStart {
  readonly request: StartRequest;
  /** Text for operators. */
  readonly progress: string;
  /** Set if the start has failed. */
  readonly exit: ReplicaExit | null;
}

/** Returns the replica of a pending start, as container drivers report it. */
export function observedStart({ request, progress, exit }: PendingStart): ObservedReplica {
  const { replicaId, spec, placement, fence } = request;
  const { definition, engineId, hash } = spec;
  return {
    replica: {
      id: replicaId,
      engineId,
      endpoint: tcpEndpoint('', 0),
      upstreamModel: null,
      headerLines: '',
      forcedUsage: containerForcesUsage(definition),
      kind: definition.kind,
    },
    specHash: hash,
    placement,
    epoch: fence.epoch,
    state: exit === null ? 'creating' : 'exited',
    progress: exit === null ? progress : null,
    health: 'probe',
    exit,
  };
}
