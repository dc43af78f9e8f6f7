import { AppError } from '#base/errors.ts';
import { formatId, parseId } from '#base/id.ts';
import type { Accounts, Project } from '#core/accounts/accounts.ts';
import { userIdOf } from '#core/audit/audit.ts';
import type { KeyOwner } from '#core/keys/keys.ts';
import { type Caller, ValidationError } from '#edge/http/http.ts';
import type { CreateKey } from './key-schemas.ts';

/** Determines the owner and the project of a new key. */

export type KeyAccounts = Pick<Accounts, 'findProject' | 'listProjects' | 'readOwner' | 'serviceAccounts'>;

type OwnerFields = Pick<CreateKey, 'project_id' | 'scope' | 'service_account_id'>;

/**
 * Returns the service account that the body names, with its project; otherwise the calling user.
 * @param asked UUID of the organization
 * @throws ValidationError
 * @throws AppError insufficient_scope, conflict
 */
export async function ownerOf(
  body: OwnerFields,
  caller: Caller,
  accounts: KeyAccounts,
  asked: string,
): Promise<KeyOwner & { readonly projectId: string }> {
  const { service_account_id: named } = body;
  if (named !== undefined) return accountOf(body, named, accounts, asked);
  const project = await projectOf(body, caller, accounts, asked);
  return { userId: await userOf(caller, accounts, asked), projectId: project.id };
}

async function accountOf(
  { project_id: projectId, scope }: OwnerFields,
  named: string,
  { serviceAccounts }: Pick<KeyAccounts, 'serviceAccounts'>,
  organizationId: string,
): Promise<KeyOwner & { readonly projectId: string }> {
  const id = parseId('svc_acct', named);
  const account = id === null ? null : await serviceAccounts.find({ organizationId, projectId: null, id });
  if (account === null) {
    throw new ValidationError([
      { field: 'service_account_id', message: 'is not a service account of this organization' },
    ]);
  }
  if (projectId !== undefined && projectId !== formatId('proj', account.projectId)) {
    throw new ValidationError([{ field: 'project_id', message: 'must be the project of the service account' }]);
  }
  if (scope === 'management') {
    throw new ValidationError([
      { field: 'scope', message: 'must be "inference" for a service account, which is only a member' },
    ]);
  }
  return { userId: null, serviceAccountId: account.id, projectId: account.projectId };
}

/**
 * Returns the user that a new key acts for: the caller. In another organization, the key acts for the owner, since it
 * must not get the rights of a platform administrator.
 * @throws AppError insufficient_scope if the caller is not a user
 */
export async function userOf({ actor, organizationId }: Caller, accounts: KeyAccounts, asked: string): Promise<string> {
  const userId = asked === organizationId ? userIdOf(actor) : await accounts.readOwner(asked);
  if (userId === null) throw new AppError('insufficient_scope', { message: 'Only a user can own an API key.' });
  return userId;
}

/** Returns the project of a new key: the body's, otherwise the caller's; in another organization, its first project. */
export async function projectOf(
  body: Pick<CreateKey, 'project_id'>,
  caller: Caller,
  accounts: KeyAccounts,
  asked: string,
): Promise<Project> {
  const project = await findProject(body, caller, accounts, asked);
  if (project === null) {
    throw new ValidationError([{ field: 'project_id', message: 'is not a project of this organization' }]);
  }
  if (!project.archived) return project;
  const message = `The project "${project.name}" is archived and accepts no new keys.`;
  throw new AppError('conflict', { message, param: 'project_id' });
}

const oldest = { page: 1, limit: 1, sort: { by: 'created_at', descending: false } } as const;

async function findProject(
  { project_id: named }: Pick<CreateKey, 'project_id'>,
  { organizationId, project }: Caller,
  accounts: KeyAccounts,
  asked: string,
): Promise<Project | null> {
  if (named === undefined && asked !== organizationId) {
    return (await accounts.listProjects({ organizationId: asked, ownId: null }, oldest)).projects[0] ?? null;
  }
  const id = named === undefined ? project.id : parseId('proj', named);
  return id === null ? null : accounts.findProject(asked, id);
}
