import { createHash } from 'node:crypto';
import type { InferenceCaller } from '#edge/http/http.ts';
import type { RequestFields } from '#edge/inference/request/request.ts';
import { parseMember } from './json-member.ts';

/** Decides for which organizations and end users spending is counted. */
export interface CountedUsers {
  countsUsers(organizationId: string): boolean;
  countsUser(organizationId: string, user: string): boolean;
}

/** Members that name the end user, OpenAI's newer one first; Anthropic's is `metadata.user_id`. */
const userKeys = ['safety_identifier', 'user'] as const;
const nameLengthMax = 256;

/**
 * Returns the end user of a request if spending is counted for that user. Reads nothing of the body if nobody counts
 * it. A text that is too long for a name, or that PostgreSQL cannot store, is replaced by its hash.
 * @throws AppError invalid_request_error for a member that is not valid JSON
 */
export function endUserOf(budgets: CountedUsers, { key }: InferenceCaller, fields: RequestFields): string | null {
  if (!budgets.countsUsers(key.organizationId)) return null;
  const given = readName(fields);
  if (given === null) return null;
  const name = isName(given) ? given : `sha256:${createHash('sha256').update(given).digest('hex')}`;
  return budgets.countsUser(key.organizationId, name) ? name : null;
}

const isName = (text: string): boolean => text.length <= nameLengthMax && text.isWellFormed() && !text.includes('\0');

/** Returns the name in a value. Only a string that is not empty names anybody. */
const nameIn = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);

function readName({ text, members }: RequestFields): string | null {
  const read = (key: string): unknown => {
    const member = members.get(key);
    return member === undefined ? null : parseMember(text, member);
  };
  for (const key of userKeys) {
    const name = nameIn(read(key));
    if (name !== null) return name;
  }
  const metadata = read('metadata');
  return typeof metadata === 'object' && metadata !== null && 'user_id' in metadata ? nameIn(metadata.user_id) : null;
}
