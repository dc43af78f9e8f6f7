import { formatId } from '#base/id.ts';
import type { KeyAnswer, ListAnswer } from './answers.ts';
import type { PageAnswer, UserAnswer } from './admin-answers.ts';
import { pathWith, type Visit } from './visit.ts';

const usersRead = 100;
const keysRead = 500;

/** Users and keys of an organization by their ids, as people call them; those that are gone are missing. */
export async function actorNames(
  { get, may, signedIn }: Visit,
  organizationId: string,
): Promise<ReadonlyMap<string, string>> {
  const of = { organization_id: organizationId };
  const [users, keys] = await Promise.all([
    may('users') ? get<PageAnswer<UserAnswer>>(pathWith('/v1/users', { ...of, limit: usersRead })) : null,
    may('keys') ? get<ListAnswer<KeyAnswer>>(pathWith('/v1/keys', { ...of, limit: keysRead })) : null,
  ]);
  return new Map([
    // In another organization a platform administrator is none of its users.
    [formatId('user', signedIn.session.userId), signedIn.member.email],
    ...(users?.data ?? []).map(({ id, email }): [string, string] => [id, email]),
    ...(keys?.data ?? []).map(({ id, name }): [string, string] => [id, name]),
  ]);
}
