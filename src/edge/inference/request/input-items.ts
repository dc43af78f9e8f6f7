import { forEachElement, type JsonMember, scanObject } from '#base/json/json.ts';
import { parseMember, valueText } from '#edge/inference/json-member.ts';
import { type BodyReader, present } from './body-reader.ts';

/**
 * Item types of the `input` of /v1/responses that work. vLLM 0.29 accepts all of OpenAI's schema and fails on most of
 * it: it makes a chat only of these four types, only of answers with a text, and has no key for reasoning that another
 * server encrypted.
 */
const knownTypes: ReadonlySet<string> = new Set(['message', 'function_call', 'function_call_output', 'reasoning']);

/** Problems only of a vLLM before 0.32. */
const customProblem = /^is of the type "custom_tool_call(?:_output)?"$/;

const shownCharsMax = 64;

/** An item that stands for an item of a stored response. Offsets are those of the body. */
export interface ItemReference {
  readonly id: string;
  readonly start: number;
  readonly end: number;
}

export interface InputItems {
  /** The first item that vLLM would fail on, with the reason: `input[1] is of the type "mcp_call"`. Null without one. */
  readonly oddItem: string | null;
  /** The first item of a custom tool, as `oddItem`: vLLM fails on them before 0.32. */
  readonly customItem: string | null;
  readonly references: readonly ItemReference[];
}

const noItems: InputItems = { oddItem: null, customItem: null, references: [] };

/** Reads the types of input items. Items that are not objects are left for the engine to reject. */
export function readInputItems(reader: BodyReader, key: string | null): InputItems {
  const member = key === null ? null : present(reader, key);
  if (member === null) return noItems;
  let index = 0;
  let oddItem: string | null = null;
  let customItem: string | null = null;
  const references: ItemReference[] = [];
  forEachElement(reader.text, member.valueStart, (start, end) => {
    const scan = scanObject(reader.text, start);
    const id = scan.ok ? referenceOf(reader.text, scan.members) : null;
    if (id !== null) references.push({ id, start, end });
    const problem = scan.ok && id === null && oddItem === null ? problemOf(reader.text, scan.members) : null;
    if (problem !== null && customProblem.test(problem)) customItem ??= `${member.key}[${index}] ${problem}`;
    else if (problem !== null) oddItem = `${member.key}[${index}] ${problem}`;
    index += 1;
    // References come after odd items, too: engines other than vLLM read these.
    return true;
  });
  return { oddItem, customItem, references };
}

/** Returns the id that an `item_reference` names. As at OpenAI, an item with only an id is one. */
function referenceOf(text: string, members: readonly JsonMember[]): string | null {
  const last = (key: string): JsonMember | undefined => members.findLast((one) => one.key === key);
  const [type, id] = [last('type'), last('id')];
  if (id === undefined || id.valueEnd - id.valueStart > referenceBytesMax) return null;
  const given = type === undefined ? 'null' : valueText(text, type);
  const isReference = given === '"item_reference"' || (given === 'null' && members.every(({ key }) => bare.has(key)));
  if (!isReference) return null;
  const value = parseMember(text, id);
  return typeof value === 'string' ? value : null;
}

/** Members of a reference. */
const bare: ReadonlySet<string> = new Set(['id', 'type']);
const referenceBytesMax = 512;

function problemOf(text: string, members: readonly JsonMember[]): string | null {
  // If a member is there twice, the last one is used, as in engines.
  const valueOf = (key: string): string | null => {
    const member = members.findLast((one) => one.key === key);
    return member === undefined ? null : valueText(text, member);
  };
  const type = valueOf('type');
  // A message needs no type. Without a type, vLLM reads it like a message of a chat.
  if (type === null) return valueOf('role') === null ? 'has neither a type nor a role' : null;
  const known = knownType(type);
  if (known === null) return `is of the type ${shown(type)}`;
  if (known === 'message') return answerProblem(text, members);
  const encrypted = known === 'reasoning' ? valueOf('encrypted_content') : null;
  const isEncrypted = encrypted !== null && encrypted !== 'null' && encrypted !== '""';
  return isEncrypted ? 'has encrypted_content, which only the server that created it can read' : null;
}

/**
 * Checks a model's earlier answer, which has its type. vLLM reads the text of its first part, whatever that part is.
 */
function answerProblem(text: string, members: readonly JsonMember[]): string | null {
  const last = (key: string): JsonMember | undefined => members.findLast((one) => one.key === key);
  const [content, role] = [last('content'), last('role')];
  if (content === undefined || role === undefined || valueText(text, role) !== '"assistant"') return null;
  let parts = 0;
  let isRefusal = false;
  const end = forEachElement(text, content.valueStart, (start) => {
    const scan = scanObject(text, start);
    const type = scan.ok ? scan.members.findLast(({ key }) => key === 'type') : undefined;
    isRefusal ||= type !== undefined && valueText(text, type) === '"refusal"';
    parts += 1;
    return !isRefusal;
  });
  if (isRefusal) return 'has a part of the type "refusal"';
  return end !== -1 && parts === 0 ? 'has no content' : null;
}

/** Returns null for any other value, string or not. */
function knownType(json: string): string | null {
  if (json.length > shownCharsMax) return null;
  try {
    const type: unknown = JSON.parse(json);
    return typeof type === 'string' && knownTypes.has(type) ? type : null;
  } catch {
    return null;
  }
}

/** Replaces bytes beyond ASCII, which are latin1 here. */
function shown(json: string): string {
  const text = json.replaceAll(/[^\x20-\x7e]/g, '?');
  return text.length > shownCharsMax ? `${text.slice(0, shownCharsMax)}…` : text;
}
