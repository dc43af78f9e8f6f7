import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { formatId } from '#base/id.ts';
import { type Audit, type Author, keyIdOf, userIdOf } from '#core/audit/audit.ts';
import { createEntrances, type Entrance, linkSeconds } from './entrances.ts';
import type { Exposure, ExposureSources } from './types.ts';

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

/** Who gets into addresses for members. */
export interface Opening {
  /** @returns null where the address went meanwhile */
  open(exposure: Exposure, opener: Opener): Promise<OpenedAddress | null>;
  /** Uses a link. @returns null for one that is not good */
  enter(exposure: Exposure, secret: string): Promise<(Entrance & { readonly secret: string }) | null>;
  /** Whose cookie it is; null for one that is not good for this address, or not any more. */
  admit(exposure: Exposure, secret: string): Promise<Entrance | null>;
}

export interface OpeningParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly sources: Pick<ExposureSources, 'isActive'>;
}

/** Where links lead: no application gets to see this path. */
export const enterPath = '/.well-known/headgate/enter';

export function createOpening({ db, clock, audit, sources }: OpeningParts): Opening {
  const entrances = createEntrances(db.sql);

  /** A cluster may have gone to another organization since. */
  async function mayEnter({ organizationId }: Exposure, { holder }: Entrance): Promise<boolean> {
    if (!holder.isOperator && holder.organizationId !== organizationId) return false;
    return sources.isActive(holder);
  }

  return {
    async open(exposure, { author, organizationId, isOperator }) {
      const { host, path, installationId } = exposure;
      if (exposure.access === 'public') return { url: `https://${host}${path}`, expiresAtMs: null };
      const holder = { keyId: keyIdOf(author.actor), userId: userIdOf(author.actor), organizationId, isOperator };
      const secret = await entrances.makeLink(installationId, holder);
      if (secret === null) return null;
      await noteOpened(db, audit, exposure, author);
      const expiresAtMs = clock.now() + linkSeconds * 1000;
      return { url: `https://${host}${enterPath}?link=${secret}`, expiresAtMs };
    },
    async enter(exposure, secret) {
      const entrance = await entrances.useLink(exposure.installationId, secret);
      return entrance !== null && (await mayEnter(exposure, entrance)) ? entrance : null;
    },
    async admit(exposure, secret) {
      const entrance = await entrances.find(exposure.installationId, secret);
      return entrance !== null && (await mayEnter(exposure, entrance)) ? entrance : null;
    },
  };
}

async function noteOpened(db: Db, audit: Audit, exposure: Exposure, author: Author): Promise<void> {
  const { organizationId, runId, host } = exposure;
  const target = { targetType: 'run', targetId: formatId('run', runId) };
  const entry = { organizationId, author, action: 'run.opened', ...target, before: null, after: { host } };
  await db.orm.transaction((tx) => audit.record(tx, entry));
}
