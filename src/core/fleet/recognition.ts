import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { isTriedVllm, type ShownEngine } from '#core/catalog/catalog.ts';
import {
  createRecognizer,
  type Engine,
  type EngineIdentity,
  type Recognizer,
  type ReplicaSlot,
} from '#core/fleet/serving/serving.ts';
import { warningsOf } from './engine-warnings.ts';

export interface RecognitionOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly engines: ReadonlyMap<string, Engine>;
  /** Called with what an engine shows of itself, after each answer. */
  readonly onShown: (engineId: string, shown: ShownEngine) => void;
}

/** Finds out the versions and kinds of engines, and logs what is new. */
export function createRecognition({ clock, log, engines, onShown }: RecognitionOptions): Recognizer {
  return createRecognizer({
    clock,
    slots: () => [...engines.values()].flatMap((engine) => engine.replicas.all()),
    onIdentity({ replica, identity: before }: ReplicaSlot, identity) {
      const engine = engines.get(replica.engineId);
      if (engine === undefined) return;
      const former = warningsOf(engine);
      engine.replicas.setIdentity(replica.id, identity);
      logIdentity(log, { engine, replicaId: replica.id, before, former });
      onShown(engine.spec.engineId, engine.shown);
      engine.serve();
    },
  });
}

interface Recognized {
  readonly engine: Engine;
  readonly replicaId: string;
  /** Identity and warnings before this answer. */
  readonly before: EngineIdentity | null | undefined;
  readonly former: readonly string[];
}

function logIdentity(log: Log, { engine, replicaId, before, former }: Recognized): void {
  const { file, id } = engine.spec.definition;
  const identity = engine.replicas.get(replicaId)?.identity;
  const about = { engine: id, replica: replicaId };
  if (engine.kind === 'vllm' && identity !== undefined && !isDeepStrictEqual(identity, before)) {
    const version = identity?.version ?? null;
    if (version === null) log.info(about, 'the version of an engine is unknown: it does not report one');
    else if (isTriedVllm(version)) log.info({ ...about, version }, 'found the version of an engine');
    else
      log.info({ ...about, version }, 'found the version of an engine: this version of Headgate was not tried with it');
  }
  for (const warning of warningsOf(engine)) {
    if (!former.includes(warning)) log.warn({ ...about, file }, `an engine does not fit its file. ${warning}`);
  }
}
