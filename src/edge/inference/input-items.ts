import { forEachElement, scanObject, type JsonMember } from '#base/json-scan.ts';
import { type BodyReader, present } from './body-reader.ts';
import { valueText } from './member.ts';

/**
 * Items of the `input` of /v1/responses. vLLM 0.29 takes all that OpenAI's schema has and fails on most: it makes a chat
 * of these four types alone, of answers with a text alone, and has no key for reasoning that another server encrypted.
 */
const knownTypes: ReadonlySet<string> = new Set(['message', 'function_call', 'function_call_output', 'reasoning']);

const shownCharsMax = 64;

/**
 * The first item that vLLM would fail on, in words: `input[1] is of the type "item_reference"`. Null without one.
 * What is no object is left for the engine to refuse. Nothing is parsed but types.
 */
export function readOddItem(reader: BodyReader, key: string | null): string | null {
  const member = key === null ? null : present(reader, key);
  if (member === null) return null;
  let index = 0;
  let odd: string | null = null;
  forEachElement(reader.text, member.valueStart, (start) => {
    const scan = scanObject(reader.text, start);
    const problem = scan.ok ? problemOf(reader.text, scan.members) : null;
    if (problem !== null) odd = `${member.key}[${index}] ${problem}`;
    index += 1;
    return odd === null;
  });
  return odd;
}

function problemOf(text: string, members: readonly JsonMember[]): string | null {
  // Of a member that is there twice the last counts, as for engines.
  const valueOf = (key: string): string | null => {
    const member = members.findLast((one) => one.key === key);
    return member === undefined ? null : valueText(text, member);
  };
  const type = valueOf('type');
  // A message needs no type; without one vLLM reads what it reads of a chat.
  if (type === null) return valueOf('role') === null ? 'has neither a type nor a role' : null;
  const known = knownType(type);
  if (known === null) return `is of the type ${shown(type)}`;
  if (known === 'message') return answerProblem(text, members);
  const encrypted = known === 'reasoning' ? valueOf('encrypted_content') : null;
  const isEncrypted = encrypted !== null && encrypted !== 'null' && encrypted !== '""';
  return isEncrypted ? 'has encrypted_content, which only the server that made it can read' : null;
}

/** What a model has said, as an answer has it: with its type. vLLM reads the text of its first part, whatever that is. */
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

/** Null for what is none of them, be it a string or not. */
function knownType(json: string): string | null {
  if (json.length > shownCharsMax) return null;
  try {
    const type: unknown = JSON.parse(json);
    return typeof type === 'string' && knownTypes.has(type) ? type : null;
  } catch {
    return null;
  }
}

/** Bytes beyond ASCII, which stand here as latin1, are not shown. */
function shown(json: string): string {
  const text = json.replaceAll(/[^\x20-\x7e]/g, '?');
  return text.length > shownCharsMax ? `${text.slice(0, shownCharsMax)}…` : text;
}
