import { formatId } from '#base/id.ts';
import type { KeyAnswer, ListAnswer } from './answers.ts';
import type { UserAnswer } from './admin-answers.ts';
import { readPages } from './read-pages.ts';
import { pathWith, type Visit } from './visit.ts';

const keysRead = 500;

/** Users and keys of an organization by their ids, as people call them; those that are gone are missing. */
export async function actorNames(visit: Visit, organizationId: string): Promise<ReadonlyMap<string, string>> {
  const { get, may, signedIn } = visit;
  const of = { organization_id: organizationId };
  const [users, keys] = await Promise.all([
    may('users') ? readPages<UserAnswer>(visit, '/v1/users', of) : null,
    may('keys') ? get<ListAnswer<KeyAnswer>>(pathWith('/v1/keys', { ...of, limit: keysRead })) : null,
  ]);
  return new Map([
    // In another organization a platform administrator is none of its users.
    [formatId('user', signedIn.session.userId), signedIn.member.email],
    ...(users ?? []).map(({ id, email }): [string, string] => [id, email]),
    ...(keys?.data ?? []).map(({ id, name }): [string, string] => [id, name]),
  ]);
}
