import type { Duplex } from 'node:stream';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { createPacedLoop } from '#base/paced-loop.ts';
import { type Audit, type Author, keyIdOf, userIdOf } from '#core/audit/audit.ts';
import { createEntrances, type Entrance, linkSeconds } from './entrances.ts';
import { createListing, isSameSite } from './listing.ts';
import { createProbes } from './probes.ts';
import { createReach } from './reach.ts';
import { createTunnels } from './tunnels.ts';
import type { Exposure, ExposureSources, ExposureStatus, Holder } from './types.ts';

/**
 * Web addresses of what runs have put on clusters: `https://<stack>--<cluster>.<public domain>`. Which there are
 * follows from the runs alone; every gateway knows them, and looks for changes each second.
 */

export type { Entrance } from './entrances.ts';
export { UnreachableError } from './reach.ts';
export type {
  Access,
  ClusterPlace,
  DeclaredPort,
  Exposure,
  ExposureSources,
  ExposureStatus,
  Holder,
  PlaceNode,
} from './types.ts';

/** An address as a run shows it. */
export interface ShownAddress {
  readonly host: string;
  readonly path: string;
  readonly status: ExposureStatus;
}

export interface OpenedAddress {
  /** With a secret that is good for one use, where the address is for members. */
  readonly url: string;
  /** Null: it does not expire. */
  readonly expiresAtMs: number | null;
}

export interface Opener {
  readonly author: Author;
  readonly organizationId: string;
  readonly isOperator: boolean;
}

export type Cut = (exposure: Exposure) => void;

export interface Exposures {
  /** Where links lead: no application gets to see this path. */
  readonly enterPath: string;
  /** Whether addresses are served here at all. */
  readonly isOn: boolean;
  /** Whether pages below this domain would be of one site with the gateway itself. */
  isOwnSite(domain: string): boolean;
  /** Whether the first look was made: before that nobody knows which names there are. */
  isKnown(): boolean;
  /** @param host in lower case, without a port */
  find(host: string): Exposure | null;
  /** Addresses of these runs, by run. */
  shown(runIds: readonly string[]): Promise<ReadonlyMap<string, ShownAddress>>;
  /** A link to the address of a run; null where it has none. */
  open(runId: string, opener: Opener): Promise<OpenedAddress | null>;
  /** Uses a link. @returns null for one that is not good */
  enter(exposure: Exposure, secret: string): Promise<(Entrance & { readonly secret: string }) | null>;
  /** Whose cookie it is; null for one that is not good for this address, or not any more. */
  admit(exposure: Exposure, secret: string): Promise<Entrance | null>;
  /** @throws UnreachableError */
  connect(exposure: Exposure): Promise<Duplex>;
  /** Looks for changes at once. Never rejects: what fails is found by the next look. */
  refresh(): Promise<void>;
  /** Calls back for each address that is gone, or leads elsewhere, or to others than before. */
  onCut(cut: Cut): void;
  /** Until the first look is made. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

export interface ExposuresOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly log: Log;
  readonly sources: ExposureSources;
  readonly isOn: boolean;
  /** Host names of the gateway itself. */
  readonly ownHosts: readonly string[];
}

const enterPath = '/.well-known/headgate/enter';
const lookEveryMs = 1000;

export function createExposures(options: ExposuresOptions): Exposures {
  const { db, clock, log, audit, sources, isOn, ownHosts } = options;
  const listing = createListing({ ...options, sql: db.sql });
  const reach = createReach(createTunnels(sources));
  const probes = createProbes(db.sql, reach);
  const entrances = createEntrances(db.sql);
  const cuts: Cut[] = [];
  let byHost: ReadonlyMap<string, Exposure> | null = null;
  let looking: Promise<void> | null = null;
  let isAskedAgain = false;
  let isFailing = false;

  async function look(): Promise<void> {
    const list = await listing.read();
    const before = byHost ?? new Map<string, Exposure>();
    byHost = new Map(list.map((exposure) => [exposure.host, exposure]));
    for (const exposure of before.values()) {
      const now = byHost.get(exposure.host);
      if (now === undefined || isCutBy(exposure, now)) for (const cut of cuts) cut(exposure);
    }
  }

  /** Who asks while a look is made gets the one after it, which sees what was there when he asked. */
  async function refresh(): Promise<void> {
    if (looking !== null) {
      isAskedAgain = true;
      return looking;
    }
    looking = (async () => {
      do {
        isAskedAgain = false;
        await look().then(
          () => (isFailing = false),
          (error: unknown) => {
            if (!isFailing)
              log.warn({ err: error }, 'web addresses could not be looked for; they are looked for again');
            isFailing = true;
          },
        );
      } while (isAskedAgain);
    })().finally(() => (looking = null));
    return looking;
  }

  let probing: Promise<void> | null = null;
  const loop = createPacedLoop(async () => {
    await refresh();
    probing ??= probes
      .run([...(byHost?.values() ?? [])])
      .catch((error: unknown) => log.warn({ err: error }, 'web addresses could not be probed; it is tried again'))
      .finally(() => (probing = null));
    return lookEveryMs;
  });

  const exposureOf = async (runId: string): Promise<Exposure | null> => {
    await refresh();
    return [...(byHost?.values() ?? [])].find((exposure) => exposure.runId === runId) ?? null;
  };

  return {
    enterPath,
    isOn,
    isOwnSite: (domain) => ownHosts.some((host) => isSameSite(domain, host)),
    isKnown: () => byHost !== null,
    find: (host) => byHost?.get(host) ?? null,
    async shown(runIds) {
      if (!isOn || runIds.length === 0) return new Map();
      const rows = await db.sql<{ runId: string; label: string; domain: string; status: ExposureStatus }[]>`
        select run_id as "runId", label, domain, status from exposures where run_id in ${db.sql([...runIds])}`;
      return new Map(
        rows.map(({ runId, label, domain, status }): [string, ShownAddress] => {
          const host = `${label}.${domain}`;
          return [runId, { host, path: byHost?.get(host)?.path ?? '/', status }];
        }),
      );
    },
    async open(runId, { author, organizationId, isOperator }) {
      const exposure = isOn ? await exposureOf(runId) : null;
      if (exposure === null) return null;
      if (exposure.access === 'public') {
        return { url: `https://${exposure.host}${exposure.path}`, expiresAtMs: null };
      }
      const holder: Holder = {
        keyId: keyIdOf(author.actor),
        userId: userIdOf(author.actor),
        organizationId,
        isOperator,
      };
      const secret = await entrances.makeLink(exposure.installationId, holder);
      if (secret === null) return null;
      await db.orm.transaction((tx) => noteOpened(audit, tx, exposure, author));
      const url = `https://${exposure.host}${enterPath}?link=${secret}`;
      return { url, expiresAtMs: clock.now() + linkSeconds * 1000 };
    },
    async enter(exposure, secret) {
      const entrance = await entrances.useLink(exposure.installationId, secret);
      return entrance !== null && (await mayEnter(exposure, entrance)) ? entrance : null;
    },
    async admit(exposure, secret) {
      const entrance = await entrances.find(exposure.installationId, secret);
      return entrance !== null && (await mayEnter(exposure, entrance)) ? entrance : null;
    },
    connect: (exposure) => reach.connect(exposure),
    refresh: () => (isOn ? refresh() : Promise.resolve()),
    onCut: (cut) => void cuts.push(cut),
    async start() {
      if (!isOn) return;
      await refresh();
      loop.start(0);
    },
    async stop() {
      await loop.close();
      await probing;
      reach.close();
    },
  };

  /** A cluster may have gone to another organization since. */
  async function mayEnter({ organizationId }: Exposure, { holder }: Entrance): Promise<boolean> {
    if (!holder.isOperator && holder.organizationId !== organizationId) return false;
    return sources.isActive(holder);
  }
}

/** What is open may stay where it leads to the same port still, and no fewer may use it. */
function isCutBy(before: Exposure, now: Exposure): boolean {
  const isNarrower = before.access === 'public' && now.access === 'members';
  const isElsewhere = JSON.stringify(before.target) !== JSON.stringify(now.target);
  const { installationId, organizationId } = now;
  const isOthers = before.installationId !== installationId || before.organizationId !== organizationId;
  return isNarrower || isElsewhere || isOthers;
}

async function noteOpened(
  audit: Audit,
  tx: Parameters<Audit['record']>[0],
  { runId, organizationId, host }: Exposure,
  author: Author,
): Promise<void> {
  const target = { targetType: 'run', targetId: formatId('run', runId) };
  await audit.record(tx, { organizationId, author, action: 'run.opened', ...target, before: null, after: { host } });
}
