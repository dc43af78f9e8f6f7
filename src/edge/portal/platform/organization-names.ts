import type { OrganizationAnswer } from '#edge/contract/organizations.ts';
import { readOnward } from '#edge/portal/frame/frame.ts';
import type { Visit } from '#edge/portal/ui/ui.ts';

/** Reads all organizations, newest first, for platform administrators. Returns an empty list for others. */
export async function readOrganizations(visit: Visit): Promise<readonly OrganizationAnswer[]> {
  return visit.may('organizations') ? readOnward(visit, '/v1/organizations') : [];
}

/** Names by id. */
export async function readOrganizationNames(visit: Visit): Promise<ReadonlyMap<string, string>> {
  return new Map((await readOrganizations(visit)).map(({ id, name }) => [id, name]));
}
