import type { OrganizationRef } from '#core/costs/costs.ts';
import type { Caller } from '#edge/http/http.ts';
import { notFound, requireId } from './schemas.ts';

/** Which organizations there are. */
export interface OrganizationDirectory {
  /** By its UUID; null when there is none. */
  find(id: string): Promise<OrganizationRef | null>;
}

/** A management key of a platform administrator. */
export function isOperator({ scope, platformRole }: Caller): boolean {
  return scope === 'management' && platformRole === 'admin';
}

/**
 * The organization of an id as it is shown, where the caller can see it.
 * @throws AppError not_found: an answer must not tell what is hidden from what is not there
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
