import { type BodyText, LargeText, latin1Json, type Splice, spliceText } from '#base/json/json.ts';
import type { Replica } from '#core/fleet/fleet.ts';
import type { EngineBody } from '#core/engine-client/engine-client.ts';
import { isNull, parseMember, valueText } from '#edge/inference/json-member.ts';
import { type Endpoint, type InputPart, integerOf, type RequestFields } from '#edge/inference/request/request.ts';

function setMember(fields: RequestFields, key: string, json: string): Splice {
  const member = fields.members.get(key);
  if (member !== undefined) return { start: member.valueStart, end: member.valueEnd, text: json };
  const [first] = fields.members.values();
  if (first === undefined) throw new Error('the body for an engine has no members');
  return { start: first.keyStart, end: first.keyStart, text: `"${key}":${json},` };
}

/** Asks for usage during the stream. An engine sends it unasked only if it was started that way. */
function askForUsage(fields: RequestFields, key: string): Splice {
  const member = fields.members.get(key);
  const given = member === undefined ? {} : parseMember(fields.text, member);
  const options = typeof given === 'object' && given !== null ? given : {};
  return setMember(fields, key, latin1Json({ ...options, include_usage: true, continuous_usage_stats: true }));
}

/**
 * Lowers the output limit. Sets the member that takes precedence, and the others if they are present: an engine may not
 * know the precedence. Raises none of them.
 */
function limitOutput(fields: RequestFields, { limitKeys }: Endpoint, tokens: number): Splice[] {
  const winner = limitKeys.at(-1);
  return limitKeys
    .filter((key) => key === winner || fields.members.has(key))
    .filter((key) => !isBelow(fields, key, tokens))
    .map((key) => setMember(fields, key, String(tokens)));
}

function isBelow({ text, members }: RequestFields, key: string, tokens: number): boolean {
  const member = members.get(key);
  if (member === undefined) return false;
  const value = integerOf(valueText(text, member));
  return value !== null && value > 0 && value < tokens;
}

export interface EngineBodyOptions {
  readonly endpoint: Endpoint;
  readonly requestId: string;
  readonly replica: Replica;
  /** Name of the model at the engine. */
  readonly upstreamModel: string;
  /** Output tokens per choice that the wallet pays for, if fewer than requested; else null. */
  readonly outputTokensMax: number | null;
  /** Salt of the prompt cache; null leaves the client's own, or none. */
  readonly cacheSalt: string | null;
  /** New values of members, as latin1 JSON. */
  readonly members: ReadonlyMap<string, string>;
  /** Part of the texts to send; null for all of them. */
  readonly part: InputPart | null;
}

/** Builds the body for the engine, a string as latin1: the client's bytes, except for the required changes. */
export function engineBody(fields: RequestFields, options: EngineBodyOptions): EngineBody {
  const { endpoint, requestId, replica, upstreamModel, outputTokensMax, cacheSalt, part, members } = options;
  const splices: Splice[] = [];
  if (fields.model !== upstreamModel) splices.push(setMember(fields, 'model', latin1Json(upstreamModel)));
  const { streamOptionsKey, storeKey, idMember, nullMembers } = endpoint;
  if (fields.stream && !replica.forcedUsage && streamOptionsKey !== null) {
    splices.push(askForUsage(fields, streamOptionsKey));
  }
  if (outputTokensMax !== null) splices.push(...limitOutput(fields, endpoint, outputTokensMax));
  // Engines default to true.
  if (storeKey !== null) splices.push(setMember(fields, storeKey, 'false'));
  setNulls(fields, nullMembers, splices);
  if (idMember !== null && replica.kind === 'vllm') {
    splices.push(setMember(fields, idMember.key, latin1Json(idMember.value.replace('{id}', requestId))));
  }
  if (cacheSalt !== null && endpoint.fields['cache_salt'] !== undefined)
    splices.push(setMember(fields, 'cache_salt', `"${cacheSalt}"`));
  for (const [key, json] of members) splices.push(setMember(fields, key, json));
  if (part !== null) splices.push(...cutOthers(fields, part));
  return replace(fields.text, mergeInsertions(splices));
}

/** Cuts all texts out of their list, except those of a part. */
function cutOthers({ split }: RequestFields, part: InputPart): Splice[] {
  if (split === null) throw new Error('a part is sent, but the request is not split');
  const cuts = [
    { start: split.start, end: part.start, text: '' },
    { start: part.end, end: split.end, text: '' },
  ];
  return cuts.filter(({ start, end }) => start < end);
}

function setNulls(fields: RequestFields, values: Endpoint['nullMembers'], splices: Splice[]): void {
  for (const [key, json] of values) {
    const member = fields.members.get(key);
    if (member !== undefined && isNull(fields.text, member)) splices.push(setMember(fields, key, json));
  }
}

function replace(text: BodyText, splices: readonly Splice[]): EngineBody {
  if (typeof text === 'string') return spliceText(text, splices);
  if (text instanceof LargeText) return spliceBytes(text.bytes, splices);
  throw new Error('the body for an engine was released before it was sent');
}

/** Returns the slices of a large body between the replacements, without copying them. */
function spliceBytes(bytes: Buffer, splices: readonly Splice[]): Buffer[] {
  const parts: Buffer[] = [];
  let from = 0;
  for (const { start, end, text } of splices.toSorted((a, b) => a.start - b.start)) {
    parts.push(bytes.subarray(from, start), Buffer.from(text, 'latin1'));
    from = end;
  }
  return [...parts, bytes.subarray(from)];
}

/** Merges insertions at one offset into one splice, because splices must not overlap. */
function mergeInsertions(splices: readonly Splice[]): readonly Splice[] {
  if (splices.length < 2) return splices;
  const insertions = splices.filter(({ start, end }) => start === end);
  const first = insertions[0];
  if (first === undefined || insertions.length === 1) return splices;
  const text = insertions.map((splice) => splice.text).join('');
  return [...splices.filter(({ start, end }) => start !== end), { ...first, text }];
}
