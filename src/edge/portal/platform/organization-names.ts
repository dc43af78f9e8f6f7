import { readOnward } from '#edge/portal/frame/frame.ts';
import type { OrganizationAnswer, Visit } from '#edge/portal/ui/ui.ts';

export interface OrganizationChoice extends OrganizationAnswer {
  readonly status: 'active' | 'suspended' | 'closed';
}

/** Reads all organizations, newest first, for platform administrators. Returns an empty list for others. */
export async function readOrganizations(visit: Visit): Promise<readonly OrganizationChoice[]> {
  return visit.may('organizations') ? readOnward(visit, '/v1/organizations') : [];
}

/** Names by id. */
export async function readOrganizationNames(visit: Visit): Promise<ReadonlyMap<string, string>> {
  return new Map((await readOrganizations(visit)).map(({ id, name }) => [id, name]));
}
