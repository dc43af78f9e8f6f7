import type { OrganizationRef } from '#core/costs/costs.ts';
import type { Caller } from '#edge/http/http.ts';
import { notFound, requireId } from './schemas.ts';

/** Lookup of organizations. */
export interface OrganizationDirectory {
  /** Finds an organization by its UUID; null if there is none. */
  find(id: string): Promise<OrganizationRef | null>;
}

/** True for a management key of a platform administrator. */
export function isOperator({ scope, platformRole }: Caller): boolean {
  return scope === 'management' && platformRole === 'admin';
}

/**
 * Returns the organization with an id of the API, if the caller may see it.
 * @throws AppError not_found: an answer must not tell a hidden organization from a missing one
 */
export async function requireOrganization(
  caller: Caller,
  directory: OrganizationDirectory,
  text: string,
): Promise<OrganizationRef> {
  const id = requireId('org', text);
  const isSeen = id === caller.organizationId || isOperator(caller);
  const found = isSeen ? await directory.find(id) : null;
  if (found === null) throw notFound('org');
  return found;
}
