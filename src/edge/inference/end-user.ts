import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { AppError } from '#base/errors.ts';
import type { InferenceCaller } from '#edge/http/http.ts';
import type { RequestFields } from '#edge/inference/request/request.ts';
import { parseMember } from './json-member.ts';

/** Decides for which organizations and end users spending is counted. */
export interface CountedUsers {
  countsUsers(organizationId: string): boolean;
  countsUser(organizationId: string, user: string): boolean;
}

export interface EndUserParts {
  readonly budgets: CountedUsers;
  /** Header, in lower case, with the end user of keys that say so; null without one. */
  readonly endUserHeader: string | null;
}

/** Members that name the end user, OpenAI's newer one first; Anthropic's is `metadata.user_id`. */
const userKeys = ['safety_identifier', 'user'] as const;
const nameMembers = [...userKeys, 'metadata'] as const;
const nameLengthMax = 256;

/** The end user of a request, as it is recorded. */
export interface EndUser {
  readonly name: string;
  /** True if a budget counts the spending of the user. */
  readonly isCounted: boolean;
}

/**
 * Returns the end user of a request; null if it names none. A text in the body that is too long for a name, or that
 * PostgreSQL cannot store, is replaced by its hash.
 *
 * The header takes precedence over the body: the program that has the key sets the header, and its own users may choose
 * what is in the body.
 * @throws AppError invalid_value for a header that is no name, and, if the organization has budgets of end users,
 *   invalid_request_error for a member that is not valid JSON
 */
export function endUserOf(
  { budgets, endUserHeader }: EndUserParts,
  { key }: InferenceCaller,
  { headers }: Pick<IncomingMessage, 'headers'>,
  fields: RequestFields,
): EndUser | null {
  const named = endUserHeader !== null && key.endUserFromHeader ? readHeader(headers, endUserHeader) : null;
  const isAnyCounted = budgets.countsUsers(key.organizationId);
  const given = named ?? (isAnyCounted ? readName(fields) : readKnownName(fields));
  if (given === null) return null;
  const name = isName(given) ? given : `sha256:${createHash('sha256').update(given).digest('hex')}`;
  return { name, isCounted: isAnyCounted && budgets.countsUser(key.organizationId, name) };
}

/** Returns no name for a body that the engine may reject: only budgets need the name to admit the request. */
function readKnownName(fields: RequestFields): string | null {
  if (!nameMembers.some((key) => fields.members.has(key))) return null;
  try {
    return readName(fields);
  } catch (error) {
    if (error instanceof AppError) return null;
    throw error;
  }
}

/** Returns null without the header. @throws AppError invalid_value, the header in `param` */
function readHeader(headers: IncomingMessage['headers'], header: string): string | null {
  const value = headers[header];
  if (value === undefined) return null;
  if (typeof value === 'string' && headerName.test(value)) return value;
  const message = `${header} must have 1 to ${nameLengthMax} printable ASCII characters without spaces.`;
  throw new AppError('invalid_value', { message, param: header });
}

/** Names in headers come from programs, which send ids and URL-encoded names. */
const headerName = /^[\x21-\x7e]{1,256}$/;

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
