import { createHmac } from 'node:crypto';

/**
 * What keeps organizations apart in the prefix cache of a vLLM: its blocks are found only by requests with the same
 * `cache_salt`, so each organization has one of its own, and whoever sends one gets that mixed with it. All are derived
 * from a secret that the gateways of a database share, so that every gateway gives the same.
 */
export interface CacheSalts {
  /**
   * @param own the salt that the request brings, null without one
   * @returns 43 characters of base64url, which say nothing about what they are made of
   */
  of(organizationId: string, own: string | null): string;
}

/** Organizations whose salts are remembered; making one takes some microseconds. */
const rememberedMax = 10_000;

/** @param secret that all gateways share; never to be logged */
export function createCacheSalts(secret: string): CacheSalts {
  const salts = new Map<string, string>();

  function ofOrganization(id: string): string {
    const known = salts.get(id);
    if (known !== undefined) return known;
    if (salts.size >= rememberedMax) salts.clear();
    const made = keyed(secret, id);
    salts.set(id, made);
    return made;
  }

  return {
    of(organizationId, own) {
      const salt = ofOrganization(organizationId);
      // With a key of its own: a client that knows its organization's salt must not make that of another one.
      return own === null ? salt : keyed(keyed(secret, `own\n${organizationId}`), own);
    },
  };
}

const keyed = (key: string, text: string): string => createHmac('sha256', key).update(text).digest('base64url');
