import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { createSerial } from '#base/queues/queues.ts';
import {
  type EngineDefinition,
  type EngineFileProblem,
  type EngineFilesResult,
  formatEngineFileProblem,
  type ReadFile,
} from '#core/catalog/files/files.ts';
import type { EngineFolder } from './engine-folder.ts';

/** Ids of engines whose files are new, changed or deleted. */
export interface EngineChanges {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly removed: readonly string[];
}

export type EngineReloadResult =
  | ({ readonly ok: true } & EngineChanges)
  | { readonly ok: false; readonly problems: readonly EngineFileProblem[] };

/** State of the engine files in effect. Times are in milliseconds since the Unix epoch. */
export interface EngineFilesState {
  /** Time at which the files in effect were read. */
  readonly readAtMs: number;
  /** A later reload that was rejected and changed nothing; null if the last reload succeeded. */
  readonly refused: { readonly atMs: number; readonly problems: readonly EngineFileProblem[] } | null;
  /** Problems of engines that runs declare: these engines are left out. */
  readonly leftOut: readonly EngineFileProblem[];
}

export interface EngineReloadParts {
  /** Engines of the files as last read. */
  readonly engines: readonly EngineDefinition[];
  /** The files of `engines`, and the engines of runs that are left out of them. */
  readonly files: readonly ReadFile[];
  readonly leftOut: readonly EngineFileProblem[];
  readonly folder: EngineFolder;
  /** Adds the engines that runs declare now to those of files. */
  readonly addRunEngines: (files: readonly ReadFile[]) => Promise<EngineFilesResult>;
  /** Writes models and prices of the new engines to the database. @returns a function that replaces the old engines */
  readonly catalog: {
    prepare(engines: readonly EngineDefinition[]): Promise<() => void>;
    /** Writes the prices that no other gateway contests. */
    settle(): Promise<boolean>;
  };
  /**
   * Prepares the fleet without writing. @returns a function that applies the engines @throws if an engine cannot run
   * here
   */
  readonly fleet: { prepare(engines: readonly EngineDefinition[]): () => void };
  /** Publishes this gateway's current files to other gateways. */
  readonly gateways: { publish(): Promise<void> };
  readonly clock: Pick<Clock, 'now'>;
  readonly log: Log;
}

export interface EngineReload {
  readonly folder: EngineFolder;
  engines(): readonly EngineDefinition[];
  state(): EngineFilesState;
  /**
   * Reads the files again and applies them. A problem in any file leaves everything unchanged.
   * @throws if the database is unreachable; everything stays unchanged then too
   */
  reload(): Promise<EngineReloadResult>;
  /**
   * Applies the engines that runs declare now. The files stay as last read: somebody may be editing them.
   * @throws as `reload`
   */
  applyRunEngines(): Promise<EngineReloadResult>;
}

export function createEngineReload(parts: EngineReloadParts): EngineReload {
  const { folder, addRunEngines, catalog, fleet, gateways, clock, log } = parts;
  let state: EngineFilesState = { readAtMs: clock.now(), refused: null, leftOut: parts.leftOut };
  let { engines, files } = parts;
  /** The last change applies the newest files. */
  const serial = createSerial();

  function refuse(problems: readonly EngineFileProblem[]): EngineReloadResult {
    const texts = problems.map(formatEngineFileProblem);
    log.error({ problems: texts }, 'the engine files are invalid; the previous configuration stays in effect');
    state = { ...state, refused: { atMs: clock.now(), problems } };
    return { ok: false, problems };
  }

  async function readAndApply(): Promise<EngineReloadResult> {
    const read = folder.read();
    return read.ok ? apply(read.files, { readAtMs: clock.now(), refused: null }) : refuse(read.problems);
  }

  async function apply(
    newFiles: readonly ReadFile[],
    newState: Omit<EngineFilesState, 'leftOut'>,
  ): Promise<EngineReloadResult> {
    const read = await addRunEngines(newFiles);
    if (!read.ok) return refuse(read.problems);
    const changes = changesBetween(engines, read.engines);
    let applyToFleet: () => void;
    try {
      applyToFleet = fleet.prepare(read.engines);
    } catch (error) {
      return refuse([{ file: 'engines', line: null, field: null, message: messageOf(error) }]);
    }
    // The last step that may fail: once it succeeds, the database and the gateway agree.
    const applyToCatalog = await catalog.prepare(read.engines);
    // Both in one synchronous step: no request sees one without the other.
    applyToFleet();
    applyToCatalog();
    ({ engines, files } = read);
    state = { ...newState, leftOut: read.leftOut };
    log.info(changes, 'applied the engine files and the engines of runs');
    await agree();
    return { ok: true, ...changes };
  }

  /** Publishes and settles the files, which are already in use: this gateway's jobs repeat what fails here. */
  async function agree(): Promise<void> {
    try {
      await gateways.publish();
      await catalog.settle();
    } catch (error) {
      log.warn(
        { err: error },
        'changed prices in the engine files are not in effect: PostgreSQL did not store them. Run "headgate engines reload" again',
      );
    }
  }

  return {
    folder,
    engines: () => engines,
    state: () => state,
    reload: () => serial('engines', readAndApply),
    applyRunEngines: () => serial('engines', () => apply(files, state)),
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
