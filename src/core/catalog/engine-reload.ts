import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { EngineDefinition } from './engine-definition.ts';
import { type EngineFileProblem, formatEngineFileProblem } from './engine-file-problem.ts';
import type { EngineFilesResult } from './engine-files.ts';

/** Ids of engines whose files are new, say something else, or are gone. */
export interface EngineChanges {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly removed: readonly string[];
}

export type EngineReloadResult =
  | ({ readonly ok: true } & EngineChanges)
  | { readonly ok: false; readonly problems: readonly EngineFileProblem[] };

/** Which files the gateway goes by. Milliseconds since the Unix epoch. */
export interface EngineFilesState {
  /** When those were read that count. */
  readonly readAtMs: number;
  /** A later reading that was refused, and changed nothing; null where the last one counts. */
  readonly refused: { readonly atMs: number; readonly problems: readonly EngineFileProblem[] } | null;
}

export interface EngineReloadParts {
  /** The engines of the files as they were read last. */
  readonly engines: readonly EngineDefinition[];
  readonly readFiles: () => EngineFilesResult;
  /** Writes models and prices of the new engines to the database. @returns what puts them in place of the old ones */
  readonly catalog: {
    prepare(engines: readonly EngineDefinition[]): Promise<() => void>;
    /** Writes the prices that no other gateway contests. */
    settle(): Promise<boolean>;
  };
  /** Writes nothing. @returns the same for what runs. @throws when one of them cannot be run here */
  readonly fleet: { prepare(engines: readonly EngineDefinition[]): () => void };
  /** Lets other gateways see which files this one has now. */
  readonly gateways: { publish(): Promise<void> };
  readonly clock: Pick<Clock, 'now'>;
  readonly log: Log;
}

export interface EngineReload {
  engines(): readonly EngineDefinition[];
  state(): EngineFilesState;
  /**
   * Reads the files again and goes by them. With any problem in any file everything stays as it was.
   * @throws when the database cannot be reached; everything stays as it was, too
   */
  reload(): Promise<EngineReloadResult>;
}

export function createEngineReload(parts: EngineReloadParts): EngineReload {
  const { readFiles, catalog, fleet, gateways, clock, log } = parts;
  let state: EngineFilesState = { readAtMs: clock.now(), refused: null };
  let engines = parts.engines;
  let last: Promise<unknown> = Promise.resolve();

  function refuse(problems: readonly EngineFileProblem[]): EngineReloadResult {
    const texts = problems.map(formatEngineFileProblem);
    log.error({ problems: texts }, 'the engine files cannot be used; everything stays as it was');
    state = { readAtMs: state.readAtMs, refused: { atMs: clock.now(), problems } };
    return { ok: false, problems };
  }

  async function once(): Promise<EngineReloadResult> {
    const read = readFiles();
    if (!read.ok) return refuse(read.problems);
    const changes = changesBetween(engines, read.engines);
    let applyToFleet: () => void;
    try {
      applyToFleet = fleet.prepare(read.engines);
    } catch (error) {
      return refuse([{ file: 'engines', line: null, field: null, message: messageOf(error) }]);
    }
    // Last of what may fail: what is in the database then is what holds.
    const applyToCatalog = await catalog.prepare(read.engines);
    // Both in one step: no request finds the one without the other.
    applyToFleet();
    applyToCatalog();
    engines = read.engines;
    state = { readAtMs: clock.now(), refused: null };
    log.info(changes, 'the engine files were read again');
    await agree();
    return { ok: true, ...changes };
  }

  /** The files are in use by now: what fails here is repeated by the jobs of this gateway. */
  async function agree(): Promise<void> {
    try {
      await gateways.publish();
      await catalog.settle();
    } catch (error) {
      log.warn(
        { err: error },
        'changed prices of the engine files do not apply yet; reload the engine files once more',
      );
    }
  }

  return {
    engines: () => engines,
    state: () => state,
    reload() {
      // One reload after the other: the last one has the newest files.
      const next = last.then(once, once);
      last = next;
      return next;
    },
  };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function changesBetween(before: readonly EngineDefinition[], after: readonly EngineDefinition[]): EngineChanges {
  const old = new Map(before.map((engine) => [engine.id, engine]));
  const ids = new Set(after.map(({ id }) => id));
  return {
    added: after.filter(({ id }) => !old.has(id)).map(({ id }) => id),
    changed: after
      .filter((engine) => old.has(engine.id) && !isDeepStrictEqual(old.get(engine.id), engine))
      .map(({ id }) => id),
    removed: before.filter(({ id }) => !ids.has(id)).map(({ id }) => id),
  };
}
