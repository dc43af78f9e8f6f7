import { formatId } from '#base/id.ts';
import type { AuditAnswer, UserAnswer } from './admin-answers.ts';
import type { KeyAnswer } from './answers.ts';
import { readKeys, readPages } from './read-pages.ts';
import { pathWith, type Visit } from './visit.ts';

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

type Name = readonly [id: string, name: string];

/** Who acted in these entries and is of another organization: known to who knows of all, and to nobody else. */
export async function strangerNames(
  visit: Visit,
  entries: readonly AuditAnswer[],
  known: ReadonlyMap<string, string>,
): Promise<ReadonlyMap<string, string>> {
  if (!visit.may('organizations')) return new Map();
  const isStranger = (id: string | null): id is string => id !== null && !known.has(id);
  const users = new Set(entries.map(({ actor }) => actor.user_id).filter(isStranger));
  const keys = new Map(
    entries.flatMap(({ actor, organization_id: at }): [string, string][] =>
      actor.type === 'key' && isStranger(actor.id) ? [[actor.id, at]] : [],
    ),
  );
  const found = await Promise.all([
    ...[...users].map((id) => userName(visit, id)),
    ...[...keys].map(([id, at]) => keyName(visit, id, at)),
  ]);
  return new Map(found.filter((name) => name !== null));
}

async function userName({ find }: Visit, id: string): Promise<Name | null> {
  const user = await find<UserAnswer>(`/v1/users/${id}`);
  return user === null ? null : [id, user.email];
}

/** A key acts in its own organization, or is an operator's. */
async function keyName({ find, ownOrganizationId }: Visit, id: string, at: string): Promise<Name | null> {
  for (const organization_id of new Set([at, ownOrganizationId])) {
    const key = await find<KeyAnswer>(pathWith(`/v1/keys/${id}`, { organization_id }));
    if (key !== null) return [id, key.name];
  }
  return null;
}
