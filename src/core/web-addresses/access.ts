import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import { type Audit, type Author, keyIdOf, sessionIdOf, userIdOf } from '#core/audit/audit.ts';
import { createEntrances, type Entrance, linkSeconds } from './access-tokens.ts';
import type { Exposure, ExposureSources, Holder } from './types.ts';

export interface OpenedAddress {
  /** Contains a secret for a single use if the address is for members. */
  readonly url: string;
  /** Null for a URL that does not expire. */
  readonly expiresAtMs: number | null;
}

export interface Opener {
  readonly author: Author;
  readonly organizationId: string;
  readonly isOperator: boolean;
}

/** Decides who may enter addresses for members. */
export interface Opening {
  /** @returns null if the address was deleted meanwhile */
  open(exposure: Exposure, opener: Opener): Promise<OpenedAddress | null>;
  /** Uses a link. @returns null for an invalid link */
  enter(exposure: Exposure, secret: string): Promise<(Entrance & { readonly secret: string }) | null>;
  /** Returns the holder of a cookie; null if the cookie is not, or no longer, valid for this address. */
  admit(exposure: Exposure, secret: string): Promise<Entrance | null>;
  /** True if a holder who has entered may still use the address. */
  mayStay(exposure: Exposure, holder: Holder): Promise<boolean>;
}

export interface OpeningParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly sources: Pick<ExposureSources, 'standing'>;
}

/** Path of links; no application receives requests for this path. */
export const enterPath = '/.well-known/headgate/enter';

export function createOpening({ db, clock, audit, sources }: OpeningParts): Opening {
  const entrances = createEntrances(db.sql);

  /**
   * Returns null if the holder may no longer enter: the cluster may have moved to another organization, or a key
   * expired.
   */
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
