import { formatId } from '#base/id.ts';
import type { UserAnswer } from './admin-answers.ts';
import { readKeys, readPages } from './read-pages.ts';
import type { Visit } from './visit.ts';

/** Users and keys of an organization by their ids, as people call them; those that are gone are missing. */
export async function actorNames(visit: Visit, organizationId: string): Promise<ReadonlyMap<string, string>> {
  const { may, signedIn } = visit;
  const of = { organization_id: organizationId };
  const [users, keys] = await Promise.all([
    may('users') ? readPages<UserAnswer>(visit, '/v1/users', of) : null,
    may('keys') ? readKeys(visit, of) : null,
  ]);
  return new Map([
    // In another organization a platform administrator is none of its users.
    [formatId('user', signedIn.session.userId), signedIn.member.email],
    ...(users ?? []).map(({ id, email }): [string, string] => [id, email]),
    ...(keys ?? []).map(({ id, name }): [string, string] => [id, name]),
  ]);
}
