import type { ListAnswer, OrganizationAnswer } from '#edge/portal/answers.ts';
import type { Visit } from '#edge/portal/visit.ts';

const organizationsMax = 100;

export interface OrganizationChoice extends OrganizationAnswer {
  readonly status: 'active' | 'suspended' | 'closed';
}

/** All of them for administrators of the platform, newest first; nothing for others. */
export async function readOrganizations({ get, may }: Visit): Promise<readonly OrganizationChoice[]> {
  if (!may('organizations')) return [];
  return (await get<ListAnswer<OrganizationChoice>>(`/v1/organizations?limit=${organizationsMax}`)).data;
}

/** Names by ids. */
export async function readOrganizationNames(visit: Visit): Promise<ReadonlyMap<string, string>> {
  return new Map((await readOrganizations(visit)).map(({ id, name }) => [id, name]));
}
