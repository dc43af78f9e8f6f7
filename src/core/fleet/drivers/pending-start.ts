import { tcpEndpoint } from '#base/endpoint.ts';
import { containerForcesUsage } from './container-command.ts';
import type { ObservedReplica, StartRequest } from './driver.ts';
import type { ReplicaExit } from './replica-exit.ts';

/** A start that is under way, or that failed before there was anything to find. */
export interface PendingStart {
  readonly request: StartRequest;
  /** For operators. */
  readonly progress: string;
  /** Set when it will not run. */
  readonly exit: ReplicaExit | null;
}

/** The replica of a pending start, as a driver of containers reports it. */
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
