import type { Duplex } from 'node:stream';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { createPacedLoop, type PacedLoop } from '#base/queues/queues.ts';
import type { Doors } from './forbidden-targets.ts';
import { createListing, isSameSite } from './listing.ts';
import { createKnown, type Cut, type Known } from './refresh-routes.ts';
import {
  createOpening,
  enterPath,
  type OpenedAddress,
  type Opener,
  type Opening,
  type OpeningParts,
} from './access.ts';
import { createProbes, type Probes } from './probes.ts';
import { createReach } from './connect-to-node.ts';
import { createTunnels } from './tunnels.ts';
import type { Exposure, ExposureSources, ExposureStatus } from './types.ts';

/**
 * Web addresses of ports that runs have opened on clusters: `https://<stack>--<cluster>.<public domain>`. Only the runs
 * determine the addresses; every gateway knows them, and polls for changes every second.
 */

export { createDoors, type Door, type Doors } from './forbidden-targets.ts';
export type { Entrance } from './access-tokens.ts';
export type {
  Access,
  AddressPort,
  ClusterPlace,
  DeclaredPort,
  Exposure,
  ExposureSources,
  ExposureStatus,
  Holder,
  PlaceNode,
  Standing,
} from './types.ts';

/** An address as a run's page shows it. */
export interface ShownAddress {
  readonly host: string;
  readonly path: string;
  readonly status: ExposureStatus;
}

export interface ShownRun {
  readonly id: string;
  /** True if the run is applied and declares a web port. */
  readonly isExposed: boolean;
}

export interface Exposures extends Pick<Opening, 'enter' | 'admit' | 'mayStay'> {
  /** Path of links; no application receives requests for this path. */
  readonly enterPath: string;
  /** True if this gateway serves web addresses. */
  readonly isOn: boolean;
  /** True if pages below this domain would be same-site with the gateway itself. */
  isOwnSite(domain: string): boolean;
  /** True after the first poll; before that no names are known. */
  isKnown(): boolean;
  /** @param host in lower case, without a port */
  find(host: string): Exposure | null;
  /** Returns the addresses of runs, by run. Polls first for a run that has just declared its port. */
  shown(runs: readonly ShownRun[]): Promise<ReadonlyMap<string, ShownAddress>>;
  /** Returns why a run's declared port has no address; null if it may have one. Call `shown` before. */
  problemOf(runId: string): string | null;
  /** Returns a link to the address of a run; null if the run has no address. */
  open(runId: string, opener: Opener): Promise<OpenedAddress | null>;
  /** @throws UnreachableError */
  connect(exposure: Exposure): Promise<Duplex>;
  /** Polls for changes at once. Never rejects: failed polls are repeated. */
  refresh(): Promise<void>;
  /** Calls back for each address that was deleted, or changed its target, its owner or its access. */
  onCut(cut: Cut): void;
  /** Resolves after the first poll. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

export interface ExposuresOptions extends OpeningParts {
  readonly log: Log;
  readonly sources: ExposureSources;
  readonly isOn: boolean;
  /** Host names of the gateway itself. */
  readonly ownHosts: readonly string[];
  readonly doors: Doors;
}

const pollMs = 1000;

export function createExposures(options: ExposuresOptions): Exposures {
  const { db, sources, isOn, ownHosts, log } = options;
  const known = createKnown(createListing({ ...options, sql: db.sql }), log);
  const reach = createReach(createTunnels(sources), options.doors);
  const loop = createPollLoop(known, createProbes(db.sql, reach), log);
  const opening = createOpening(options);
  const all = (): readonly Exposure[] => [...(known.byHost()?.values() ?? [])];
  return {
    enterPath,
    isOn,
    isOwnSite: (domain) => ownHosts.some((host) => isSameSite(domain, host)),
    isKnown: () => known.byHost() !== null,
    find: (host) => known.byHost()?.get(host) ?? null,
    async shown(runs) {
      if (!isOn || runs.length === 0) return new Map();
      // A caller who reads that a run is applied gets its current address, not the previous one.
      if (runs.some(({ id, isExposed }) => isExposed && !known.hasSeen(id))) await known.refresh();
      return readShown(
        db,
        known,
        runs.map(({ id }) => id),
      );
    },
    problemOf: (runId) => known.problemOf(runId),
    async open(runId, opener) {
      if (isOn) await known.refresh();
      const exposure = all().find((other) => other.runId === runId);
      return exposure === undefined ? null : opening.open(exposure, opener);
    },
    enter: (exposure, secret) => opening.enter(exposure, secret),
    admit: (exposure, secret) => opening.admit(exposure, secret),
    mayStay: (exposure, holder) => opening.mayStay(exposure, holder),
    connect: (exposure) => reach.connect(exposure),
    refresh: () => (isOn ? known.refresh() : Promise.resolve()),
    onCut: (cut) => known.onCut(cut),
    async start() {
      if (!isOn) return;
      await known.refresh();
      loop.start(0);
    },
    async stop() {
      await loop.close();
      reach.close();
    },
  };
}

/** Polls and probes in a loop. Probes take time, and polls do not wait for them. */
function createPollLoop(known: Known, probes: Probes, log: Log): PacedLoop {
  let probing: Promise<void> | null = null;
  const loop = createPacedLoop(async () => {
    await known.refresh();
    probing ??= probes
      .run([...(known.byHost()?.values() ?? [])])
      .catch((error: unknown) =>
        log.warn(
          { err: error },
          'the programs behind web addresses could not be checked; their status may be old. Retrying',
        ),
      )
      .finally(() => (probing = null));
    return pollMs;
  });
  return {
    ...loop,
    async close() {
      await loop.close();
      await probing;
    },
  };
}

async function readShown(db: Db, known: Known, runIds: readonly string[]): Promise<ReadonlyMap<string, ShownAddress>> {
  const rows = await db.sql<{ runId: string; label: string; domain: string; status: ExposureStatus }[]>`
    select run_id as "runId", label, domain, status from exposures where run_id in ${db.sql([...runIds])}`;
  return new Map(
    rows.map(({ runId, label, domain, status }): [string, ShownAddress] => {
      const host = `${label}.${domain}`;
      return [runId, { host, path: known.byHost()?.get(host)?.path ?? '/', status }];
    }),
  );
}
