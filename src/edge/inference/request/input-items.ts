import { forEachElement, type JsonMember, scanObject } from '#base/json/json.ts';
import { valueText } from '#edge/inference/json-member.ts';
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

export interface OddItems {
  readonly oddItem: string | null;
  readonly customItem: string | null;
}

/**
 * Returns the first item that every vLLM would fail on, and the first item of a custom tool, with the reason:
 * `input[1] is of the type "item_reference"`. Null without one. Items that are not objects are left for the engine to
 * reject. Only types are parsed.
 */
export function readOddItems(reader: BodyReader, key: string | null): OddItems {
  const member = key === null ? null : present(reader, key);
  if (member === null) return { oddItem: null, customItem: null };
  let index = 0;
  let odd: string | null = null;
  let custom: string | null = null;
  forEachElement(reader.text, member.valueStart, (start) => {
    const scan = scanObject(reader.text, start);
    const problem = scan.ok ? problemOf(reader.text, scan.members) : null;
    if (problem !== null && customProblem.test(problem)) custom ??= `${member.key}[${index}] ${problem}`;
    else if (problem !== null) odd = `${member.key}[${index}] ${problem}`;
    index += 1;
    return odd === null;
  });
  return { oddItem: odd, customItem: custom };
}

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
