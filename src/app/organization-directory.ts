import type { Accounts, Organization } from '#core/accounts/accounts.ts';

/** Organizations by their id and name, for rooms that do not know accounts. */
export interface OrganizationDirectory {
  /** Returns the organization with this UUID; null when there is none. */
  find(id: string): Promise<OrganizationName | null>;
  /** Returns the organization that was created first; null when there is none. */
  first(): Promise<OrganizationName | null>;
}

type OrganizationName = Pick<Organization, 'id' | 'name'>;

const pageSize = 500;

export function createOrganizationDirectory(
  accounts: Pick<Accounts, 'listOrganizations' | 'readOrganization'>,
): OrganizationDirectory {
  let firstId: string | null = null;
  const find = async (id: string): Promise<OrganizationName | null> => {
    const found = await accounts.readOrganization(id);
    return found === null ? null : { id, name: found.name };
  };
  const findFirst = async (): Promise<OrganizationName | null> => {
    for (let before: string | null = null; ;) {
      const { organizations, more } = await accounts.listOrganizations(pageSize, before);
      const last = organizations.at(-1);
      if (!more || last === undefined) return last ?? null;
      before = last.id;
    }
  };
  return {
    find,
    async first() {
      const first = firstId === null ? await findFirst() : await find(firstId);
      firstId = first?.id ?? null;
      return first;
    },
  };
}
