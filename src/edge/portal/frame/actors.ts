import { formatId } from '#base/id.ts';
import type { AuditEntryAnswer } from '#edge/contract/audit.ts';
import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { UserAnswer } from '#edge/contract/users.ts';
import { html, type MaybeHtml, pathWith, type Visit } from '#edge/portal/ui/ui.ts';
import { readKeys, readPages } from './read-pages.ts';

/** Maps ids of an organization's users and keys to their names. Deleted users and keys are missing. */
export async function actorNames(visit: Visit, organizationId: string): Promise<ReadonlyMap<string, string>> {
  const { may, signedIn } = visit;
  const of = { organization_id: organizationId };
  const [users, keys] = await Promise.all([
    may('users') ? readPages<UserAnswer>(visit, '/v1/users', of) : null,
    may('keys') ? readKeys(visit, of) : null,
  ]);
  return new Map([
    // A platform administrator who looks at another organization is not among its users.
    [formatId('user', signedIn.session.userId), signedIn.member.email],
    ...(users ?? []).map(({ id, email }): [string, string] => [id, email]),
    ...(keys ?? []).map(({ id, name }): [string, string] => [id, name]),
  ]);
}

type Name = readonly [id: string, name: string];

/** Names of the actors in these entries who belong to another organization. Only platform administrators see them. */
export async function strangerNames(
  visit: Visit,
  entries: readonly AuditEntryAnswer[],
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

/**
 * Finds a key in the entry's organization, or in the visitor's: a key acts in its own organization or belongs to an
 * operator.
 */
async function keyName({ find, ownOrganizationId }: Visit, id: string, at: string): Promise<Name | null> {
  for (const organization_id of new Set([at, ownOrganizationId])) {
    const key = await find<KeyAnswer>(pathWith(`/v1/keys/${id}`, { organization_id }));
    if (key !== null) return [id, key.name];
  }
  return null;
}

const nounsOfIds: Readonly<Record<string, string>> = { key: 'a key', user: 'a user' };

/** Returns the actor, by name if the name is known. */
export function actorOf({ actor }: AuditEntryAnswer, names: ReadonlyMap<string, string>): MaybeHtml {
  const { type, id } = actor;
  if (type === 'system' || id === null) return html`<strong>Headgate</strong>`;
  const name = names.get(id);
  const who = name === undefined ? html`${nounsOfIds[type]} <code>${id}</code>` : html`<strong>${name}</strong>`;
  if (type !== 'key') return who;
  const owner = actor.service_account_id === null ? names.get(actor.user_id ?? '') : 'a service account';
  return html`${name === undefined ? null : 'the key '}${who}${owner === undefined ? null : html` <span class="quiet">(of ${owner})</span>`}`;
}
