import { isDeepStrictEqual } from 'node:util';
import type { Log } from '#base/log.ts';
import {
  formatEngineFileProblem,
  type Catalog,
  type EngineDefinition,
  type EngineFileProblem,
  type EngineFilesResult,
} from '#core/catalog/catalog.ts';

/** Ids of engines whose files are new, say something else, or are gone. */
export interface EngineChanges {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly removed: readonly string[];
}

export type EngineReloadResult =
  | ({ readonly ok: true } & EngineChanges)
  | { readonly ok: false; readonly problems: readonly EngineFileProblem[] };

export interface EngineReloadParts {
  /** Of the files as they were read last. */
  readonly engines: readonly EngineDefinition[];
  readonly readFiles: () => EngineFilesResult;
  readonly catalog: Pick<Catalog, 'prepare'>;
  readonly fleet: { reload(engines: readonly EngineDefinition[]): Promise<void> | void };
  readonly log: Log;
}

export interface EngineReload {
  engines(): readonly EngineDefinition[];
  /**
   * Reads the files again and goes by them. With any problem in any file everything stays as it was.
   * @throws when the books cannot be reached; everything stays as it was, too
   */
  reload(): Promise<EngineReloadResult>;
}

export function createEngineReload(parts: EngineReloadParts): EngineReload {
  const { readFiles, catalog, fleet, log } = parts;
  let engines = parts.engines;
  let last: Promise<unknown> = Promise.resolve();

  async function once(): Promise<EngineReloadResult> {
    const read = readFiles();
    if (!read.ok) {
      const problems = read.problems.map(formatEngineFileProblem);
      log.error({ problems }, 'the engine files cannot be used; everything stays as it was');
      return read;
    }
    const changes = changesBetween(engines, read.engines);
    const applyToCatalog = await catalog.prepare(read.engines);
    // The fleet first: a model that the catalog lists can be asked for.
    await fleet.reload(read.engines);
    applyToCatalog();
    engines = read.engines;
    log.info(changes, 'the engine files were read again');
    return { ok: true, ...changes };
  }

  return {
    engines: () => engines,
    reload() {
      // One after the other: the last one goes by the newest files.
      const next = last.then(once, once);
      last = next;
      return next;
    },
  };
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
