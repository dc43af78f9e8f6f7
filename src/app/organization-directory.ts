import type { Accounts, Organization } from '#core/accounts/accounts.ts';

/** Organizations by their id and name, for rooms that do not know accounts. */
export interface OrganizationDirectory {
  /** By its UUID; null when there is none. */
  find(id: string): Promise<OrganizationName | null>;
  /** The one that was made first; null before there is any. */
  first(): Promise<OrganizationName | null>;
}

type OrganizationName = Pick<Organization, 'id' | 'name'>;

const pageSize = 500;

export function createOrganizationDirectory(accounts: Pick<Accounts, 'listOrganizations'>): OrganizationDirectory {
  let firstId: string | null = null;
  const find = async (id: string): Promise<OrganizationName | null> => {
    const next = idAfter(id);
    const [found] = next === null ? [] : (await accounts.listOrganizations(1, next)).organizations;
    return found?.id === id ? { id, name: found.name } : null;
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

/** The UUID that follows one; lists end before a given id. Null for the last. */
function idAfter(id: string): string | null {
  const digits = (BigInt(`0x${id.replaceAll('-', '')}`) + 1n).toString(16).padStart(32, '0');
  if (digits.length > 32) return null;
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
