import type { Log } from '#base/log.ts';
import type { Listing } from './listing.ts';
import type { Exposure } from './types.ts';

export type Cut = (exposure: Exposure) => void;

/** The addresses that this gateway knows, by host. */
export interface Known {
  /** Null before the first poll. */
  readonly byHost: () => ReadonlyMap<string, Exposure> | null;
  /** True if the last poll has read the run's declaration. */
  readonly hasSeen: (runId: string) => boolean;
  /** Returns why the run's declared port has no address; null if it may have one. */
  readonly problemOf: (runId: string) => string | null;
  /** Polls for changes. Never rejects: failed polls are repeated. */
  readonly refresh: () => Promise<void>;
  readonly onCut: (cut: Cut) => void;
}

export function createKnown(listing: Listing, log: Log): Known {
  const cuts: Cut[] = [];
  let byHost: ReadonlyMap<string, Exposure> | null = null;
  let seen: ReadonlySet<string> = new Set();
  let problems: ReadonlyMap<string, string> = new Map();
  let refreshing: Promise<void> | null = null;
  let isAskedAgain = false;
  let isFailing = false;

  async function readRoutes(): Promise<void> {
    const { exposures: list, runIds, problems: found } = await listing.read();
    seen = runIds;
    problems = found;
    const before = byHost ?? new Map<string, Exposure>();
    byHost = new Map(list.map((exposure) => [exposure.host, exposure]));
    for (const exposure of before.values()) {
      const now = byHost.get(exposure.host);
      if (now === undefined || isCutBy(exposure, now)) for (const cut of cuts) cut(exposure);
    }
  }

  async function refreshUntilSeen(): Promise<void> {
    do {
      isAskedAgain = false;
      try {
        await readRoutes();
        isFailing = false;
      } catch (error) {
        if (!isFailing)
          log.warn(
            { err: error },
            'changes of web addresses cannot be read from PostgreSQL; the known addresses stay in use. Retrying',
          );
        isFailing = true;
      }
    } while (isAskedAgain);
  }

  return {
    byHost: () => byHost,
    hasSeen: (runId) => seen.has(runId),
    problemOf: (runId) => problems.get(runId) ?? null,
    onCut: (cut) => void cuts.push(cut),
    /** Callers during a poll get the next poll, which reads the state at the time of their call. */
    refresh() {
      if (refreshing === null) refreshing = refreshUntilSeen().finally(() => (refreshing = null));
      else isAskedAgain = true;
      return refreshing;
    },
  };
}

/** True if open connections must end: the target, owner or address changed, or fewer people may use it. */
function isCutBy(before: Exposure, now: Exposure): boolean {
  const isForMembers = before.access === 'public' && now.access === 'members';
  const isNarrower = isForMembers || (!before.isSuspended && now.isSuspended);
  const isElsewhere = JSON.stringify(before.target) !== JSON.stringify(now.target);
  const { installationId, organizationId } = now;
  const isOthers = before.installationId !== installationId || before.organizationId !== organizationId;
  return isNarrower || isElsewhere || isOthers;
}
