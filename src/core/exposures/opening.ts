import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { formatId } from '#base/id.ts';
import { type Audit, type Author, keyIdOf, sessionIdOf, userIdOf } from '#core/audit/audit.ts';
import { createEntrances, type Entrance, linkSeconds } from './entrances.ts';
import type { Exposure, ExposureSources, Holder } from './types.ts';

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
  /** Whether who has entered may still use it. */
  mayStay(exposure: Exposure, holder: Holder): Promise<boolean>;
}

export interface OpeningParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly sources: Pick<ExposureSources, 'standing'>;
}

/** Where links lead: no application gets to see this path. */
export const enterPath = '/.well-known/headgate/enter';

export function createOpening({ db, clock, audit, sources }: OpeningParts): Opening {
  const entrances = createEntrances(db.sql);

  /** Null for who may not enter any more: a cluster may have gone to another organization since, or a key expired. */
  async function held<E extends Entrance>({ organizationId }: Exposure, entrance: E | null): Promise<E | null> {
    if (entrance === null) return null;
    const { holder } = entrance;
    if (!holder.isOperator && holder.organizationId !== organizationId) return null;
    const standing = await sources.standing(holder);
    if (standing === null) return null;
    const endsAtMs = standing.expiresAtMs ?? Number.POSITIVE_INFINITY;
    return { ...entrance, expiresAtMs: Math.min(entrance.expiresAtMs, endsAtMs) };
  }

  return {
    async open(exposure, { author, organizationId, isOperator }) {
      const { host, path, installationId } = exposure;
      if (exposure.access === 'public') return { url: `https://${host}${path}`, expiresAtMs: null };
      const { actor } = author;
      const ids = { keyId: keyIdOf(actor), userId: userIdOf(actor), sessionId: sessionIdOf(actor) };
      const holder = { ...ids, organizationId, isOperator };
      const secret = await entrances.makeLink(installationId, holder);
      if (secret === null) return null;
      await noteOpened(db, audit, exposure, author);
      const expiresAtMs = clock.now() + linkSeconds * 1000;
      return { url: `https://${host}${enterPath}?link=${secret}`, expiresAtMs };
    },
    enter: async (exposure, secret) => held(exposure, await entrances.useLink(exposure.installationId, secret)),
    admit: async (exposure, secret) => held(exposure, await entrances.find(exposure.installationId, secret)),
    async mayStay(exposure, holder) {
      return (await held(exposure, { holder, expiresAtMs: 0 })) !== null;
    },
  };
}

async function noteOpened(db: Db, audit: Audit, exposure: Exposure, author: Author): Promise<void> {
  const { organizationId, runId, host } = exposure;
  const target = { targetType: 'run', targetId: formatId('run', runId) };
  const entry = { organizationId, author, action: 'run.opened', ...target, before: null, after: { host } };
  await db.orm.transaction((tx) => audit.record(tx, entry));
}
