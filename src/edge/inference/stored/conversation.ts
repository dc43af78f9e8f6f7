import { AppError } from '#base/errors.ts';
import { isUuid } from '#base/id.ts';
import { type BodyText, type JsonMember, LargeText, latin1Json, memberCut } from '#base/json/json.ts';
import type { Chain, ReadMemory, ResponseScope, StoredResponses } from '#core/responses/responses.ts';
import type { BodyHold, BodyShares, InferenceCaller } from '#edge/http/http.ts';
import type { Call, Storing } from '#edge/inference/call/call.ts';
import { isNull, parseMember, valueText } from '#edge/inference/json-member.ts';
import type { Receiver } from '#edge/inference/receive/receive.ts';
import { invalidValue, type RequestFields } from '#edge/inference/request/request.ts';

export interface ConversationParts {
  readonly storedResponses: StoredResponses;
  readonly receiver: Receiver;
  readonly shares: BodyShares;
  readonly limits: { readonly bodyBytesMax: number };
}

/** Most responses of one conversation. */
const turnsMax = 1000;
/** Most references in one request. */
const referencesMax = 1000;

const prefix = 'resp_';

/** Returns the UUID in the id of a response; null for any other text. */
export function parseResponseId(id: string): string | null {
  const uuid = id.startsWith(prefix) ? id.slice(prefix.length) : '';
  return isUuid(uuid) ? uuid : null;
}

export const formatResponseId = (uuid: string): string => prefix + uuid;

/** Returns the responses that a caller may name: of the project that the request works in; all for management keys. */
export function scopeOf({ organizationId, scope, project }: InferenceCaller): ResponseScope {
  return { organizationId, projectId: scope === 'management' ? null : project.id };
}

/**
 * Replaces what a request names of stored responses by the items themselves: `previous_response_id` and
 * `item_reference`. The request that it returns is limited, billed and sent like one that has all items. Notes in the
 * call what is stored of the request.
 * @throws AppError invalid_value, unsupported_parameter, previous_response_not_found, not_found, request_too_large
 */
export function readConversation(
  parts: ConversationParts,
  call: Call,
  caller: InferenceCaller,
  fields: RequestFields,
): RequestFields | Promise<RequestFields> {
  const { endpoint, found, requestId, terms } = call;
  if (endpoint.itemsKey === null) return fields;
  const store = endpoint.storeKey === null ? false : readStore(fields, endpoint.storeKey);
  const previous = readPrevious(fields);
  if (!parts.storedResponses.isOn) {
    requireNothingStored(fields, store === true, previous);
    return fields;
  }
  // Results of a batch are in its output file.
  const isStored = store ?? !terms.isWholeOrFree;
  const previousId = previous === null ? null : parseResponseId(previous);
  if (previous !== null && previousId === null) throw notStored(previous, previous);
  const storing: Storing = {
    isStored,
    previousId,
    shown: [
      ...(isStored ? [['id', latin1Json(formatResponseId(requestId))] as const] : []),
      ['previous_response_id', latin1Json(previous)],
      ['store', String(isStored)],
    ],
    own: null,
    input: null,
    keep: null,
  };
  if (endpoint.storeKey !== null) found.storing = storing;
  if (previousId === null && fields.references.length === 0) return fields;
  const input = fields.members.get(endpoint.itemsKey);
  return expand(parts, { call, caller, fields, input, storing });
}

interface Expansion {
  readonly call: Call;
  readonly caller: InferenceCaller;
  readonly fields: RequestFields;
  /** The member with the items. */
  readonly input: JsonMember | undefined;
  readonly storing: Storing;
}

async function expand(parts: ConversationParts, expansion: Expansion): Promise<RequestFields> {
  const { call, caller, fields, input, storing } = expansion;
  const items = await readReferences(parts, expansion);
  const own = listOf(fields, input, items);
  storing.own = own;
  const earlier = await readEarlier(parts, expansion, own.length);
  const body = Buffer.concat(spliceBody(expansion, joinLists([...earlier, own])));
  if (body.length > parts.limits.bodyBytesMax) throw tooLong(parts);
  const expanded = await parts.receiver.reread(call, caller, body);
  expanded.hash = fields.hash;
  return expanded;
}

/** Returns the JSON of the items that references name, in their order. */
async function readReferences(
  parts: ConversationParts,
  { call, caller, fields: { references, text } }: Expansion,
): Promise<readonly Buffer[]> {
  if (references.length > referencesMax)
    throw invalidValue('input', `"input" may have at most ${referencesMax} item references.`);
  const { storedResponses, receiver, shares, limits } = parts;
  const places = Map.groupBy(references, ({ id }) => id);
  let bytesLeft = limits.bodyBytesMax - text.length;
  const reserve = (itemBytes: number, id: string): void => {
    const bytes = itemBytes * (places.get(id)?.length ?? 1);
    bytesLeft -= bytes;
    if (bytesLeft < 0) throw tooLong(parts);
    receiver.reserve(call, caller, bytes);
  };
  const memory = readMemory(shares.hold(caller.key.id), limits);
  const found = await storedResponses.readItems(scopeOf(caller), [...places.keys()], { memory, reserve });
  return references.map(({ id }) => {
    const item = found.get(id);
    if (item !== undefined) return Buffer.from(item);
    const message = `The item ${quoted(id)} is not stored: it is unknown, deleted or expired, or its response had "store": false. Send the item itself.`;
    throw new AppError('not_found', { message, param: 'input' });
  });
}

/** Memory to read a response. A caller that holds no other can read any response. */
export function readMemory(hold: BodyHold, { bodyBytesMax }: ConversationParts['limits']): ReadMemory {
  return { grow: (bytes) => hold.grow(Math.min(bytes, bodyBytesMax)), release: () => hold.release() };
}

/** @returns JSON lists of the earlier turns */
async function readEarlier(
  parts: ConversationParts,
  { call, caller, storing: { previousId } }: Expansion,
  ownBytes: number,
): Promise<readonly Buffer[]> {
  if (previousId === null) return [];
  const bytesMax = Math.max(0, parts.limits.bodyBytesMax - ownBytes);
  const reserve = (bytes: number): void => parts.receiver.reserve(call, caller, bytes);
  const options = { id: previousId, turnsMax, bytesMax, reserve };
  const chain = await parts.storedResponses.readChain(scopeOf(caller), options);
  return turnsOf(parts, chain, previousId).flatMap(({ input, output }) => [
    Buffer.from(input),
    Buffer.from(`[${output.join(',')}]`),
  ]);
}

function turnsOf(parts: ConversationParts, chain: Chain, previousId: string) {
  if (chain.kind === 'found') return chain.turns;
  if (chain.kind === 'too_long') throw tooLong(parts);
  throw notStored(formatResponseId(previousId), formatResponseId(chain.id));
}

/** Returns the JSON list of a request's own input items. */
export function ownItems({ endpoint, found: { storing } }: Call, fields: RequestFields): Buffer {
  const { itemsKey } = endpoint;
  return storing?.own ?? listOf(fields, itemsKey === null ? undefined : fields.members.get(itemsKey), []);
}

/**
 * Returns a body's input as a JSON list.
 * @param items what its references stand for
 */
function listOf({ text, references }: RequestFields, member: JsonMember | undefined, items: readonly Buffer[]): Buffer {
  if (member === undefined || isNull(text, member)) return Buffer.from('[]');
  const { valueStart, valueEnd } = member;
  const first = text.slice(valueStart, valueStart + 1);
  if (first === '"') {
    const message = [Buffer.from('[{"type":"message","role":"user","content":'), bytesOf(text, valueStart, valueEnd)];
    return Buffer.concat([...message, Buffer.from('}]')]);
  }
  if (first !== '[') throw invalidValue(member.key, `"${member.key}" must be a string or a list of items.`);
  const pieces: Buffer[] = [];
  let from = valueStart;
  for (const [at, { start, end }] of references.entries()) {
    pieces.push(bytesOf(text, from, start), items[at] ?? Buffer.from('null'));
    from = end;
  }
  return Buffer.concat([...pieces, bytesOf(text, from, valueEnd)]);
}

function bytesOf(text: BodyText, start: number, end: number): Buffer {
  return text instanceof LargeText ? text.bytes.subarray(start, end) : Buffer.from(text.slice(start, end), 'latin1');
}

/** Joins JSON lists into one. */
function joinLists(lists: readonly Buffer[]): Buffer {
  const comma = Buffer.from(',');
  const inner = lists.map((list) => list.subarray(1, -1)).filter((bytes) => bytes.toString('latin1').trim() !== '');
  const joined = inner.flatMap((bytes, at) => (at === 0 ? [bytes] : [comma, bytes]));
  return Buffer.concat([Buffer.from('['), ...joined, Buffer.from(']')]);
}

/** Returns the body with other items, and without the id of a previous response. */
function spliceBody({ fields: { text, members }, input, call: { endpoint } }: Expansion, items: Buffer): Buffer[] {
  const all = [...members.values()];
  const previous = members.get(previousKey);
  const cut = previous === undefined ? null : memberCut(previous, all);
  const added = [Buffer.from(`"${endpoint.itemsKey}":`), items, Buffer.from(',')];
  const first = all[0]?.keyStart ?? 0;
  const set =
    input === undefined
      ? { start: first, end: first, bytes: added }
      : { start: input.valueStart, end: input.valueEnd, bytes: [items] };
  const splices = [set, ...(cut === null ? [] : [{ ...cut, bytes: [] }])].toSorted((a, b) => a.start - b.start);
  const pieces: Buffer[] = [];
  let from = 0;
  for (const { start, end, bytes } of splices) {
    pieces.push(bytesOf(text, from, start), ...bytes);
    from = end;
  }
  return [...pieces, bytesOf(text, from, text.length)];
}

const previousKey = 'previous_response_id';

function readPrevious({ text, members }: RequestFields): string | null {
  const member = members.get(previousKey);
  if (member === undefined || isNull(text, member)) return null;
  const value = parseMember(text, member);
  if (typeof value !== 'string') throw invalidValue(previousKey, `"${previousKey}" must be a string.`);
  return value;
}

/** Returns null if the request does not say. */
function readStore({ text, members }: RequestFields, key: string): boolean | null {
  const member = members.get(key);
  if (member === undefined || isNull(text, member)) return null;
  const value = valueText(text, member);
  if (value !== 'true' && value !== 'false') throw invalidValue(key, `"${key}" must be true or false.`);
  return value === 'true';
}

/** Rejects what needs stored responses, where none are stored. */
function requireNothingStored({ references }: RequestFields, isStored: boolean, previous: string | null): void {
  const off = 'Responses are not stored here (HEADGATE_RESPONSE_DAYS is 0)';
  const refuse = (param: string, advice: string): AppError =>
    new AppError('unsupported_parameter', { message: `${off}. ${advice}`, param });
  if (isStored) throw refuse('store', 'Send "store": false.');
  if (previous !== null) throw refuse(previousKey, 'Send the conversation in "input".');
  if (references.length > 0) {
    throw refuse('input', 'Send the items themselves, as the AI SDK does with "store": false.');
  }
}

/** Longest text of a client that an error repeats. */
const quotedCharsMax = 80;
const quoted = (id: string): string => JSON.stringify(id.slice(0, quotedCharsMax));

function notStored(previous: string, missing: string): AppError {
  const cause =
    previous === missing
      ? `The response ${quoted(previous)} is not stored: it is unknown, deleted or expired, or had "store": false.`
      : `The conversation of ${quoted(previous)} is incomplete: its response ${quoted(missing)} is deleted or expired.`;
  const message = `${cause} Send the conversation in "input".`;
  return new AppError('previous_response_not_found', { message, param: previousKey });
}

function tooLong({ limits: { bodyBytesMax } }: ConversationParts): AppError {
  const message = `The stored conversation is too long: it may have at most ${turnsMax} responses and ${bodyBytesMax} bytes. Send a shorter conversation in "input".`;
  return new AppError('request_too_large', { message, param: previousKey });
}
