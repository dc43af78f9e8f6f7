import { createHmac } from 'node:crypto';

/**
 * Salts that separate organizations in the prefix cache of vLLM: a cached block is found only by requests with the same
 * `cache_salt`. Each organization has its own salt, which is mixed with the salt that a request brings. All salts are
 * derived from a secret that the gateways of a database share, so every gateway uses the same ones.
 */
export interface CacheSalts {
  /**
   * @param own the salt that the request brings, null without one
   * @returns 43 characters of base64url, which say nothing about what they are made of
   */
  of(organizationId: string, own: string | null): string;
}

/** Number of organizations whose salts are kept in memory; computing a salt takes some microseconds. */
const rememberedMax = 10_000;

/** @param secret the secret that all gateways share; must not be logged */
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
      // Uses a separate key: a client that knows its organization's salt must not be able to compute another salt.
      return own === null ? salt : keyed(keyed(secret, `own\n${organizationId}`), own);
    },
  };
}

const keyed = (key: string, text: string): string => createHmac('sha256', key).update(text).digest('base64url');
