import type { Options } from './args.ts';
import { badRequest, invalidBody, type Refused } from './errors.ts';
import type { Body } from './params.ts';
import type { Engine } from './run.ts';
import { createPromptScanner, encode, type PromptScan } from './tokenizer.ts';

const START = 1;
const END = 2;
const SYSTEM = 'You are a stand-in for a model.';
const CHAT_DEFAULTS = { system: 'system', user: 'user', assistant: 'assistant' };

export interface ChatPrompt {
  scan: PromptScan;
  /** The user's last message; "" when a tool answered last. */
  asked: string;
}

type Visit = { text: (text: string) => void; special: (id: number) => void };

/** The text of a message's content; null when a part is not text. */
function contentText(content: unknown): string | null {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  let text = '';
  for (const part of content as unknown[]) {
    if (typeof part === 'string') text += part;
    else if (typeof part === 'object' && part !== null) {
      const { type, text: own } = part as Body;
      if (type !== 'text' && type !== 'refusal') return null;
      if (typeof own === 'string') text += own;
    }
  }
  return text;
}

function visitTurn(visit: Visit, role: string, content: string): void {
  visit.special(START);
  visit.text(role);
  visit.text('\n');
  visit.text(content);
  visit.special(END);
  visit.text('\n');
}

/** Walks through a conversation as the chat template prints it. */
function visitMessages(
  messages: readonly unknown[],
  visit: Visit,
  { preambleTokens }: Options,
): { asked: string } | 'media' {
  let asked = '';
  for (let count = 0; count < preambleTokens; count += 1) visit.special(START);
  const [first] = messages;
  const hasSystem = typeof first === 'object' && first !== null && (first as Body).role === 'system';
  if (!hasSystem) visitTurn(visit, CHAT_DEFAULTS.system, SYSTEM);
  for (const message of messages) {
    const {
      role,
      content,
      tool_calls: calls,
    } = (typeof message === 'object' && message !== null ? message : {}) as Body;
    const text = contentText(content);
    if (text === null) return 'media';
    const turn = typeof role === 'string' ? role : CHAT_DEFAULTS.user;
    visitTurn(visit, turn, calls === undefined ? text : text + JSON.stringify(calls));
    if (turn === CHAT_DEFAULTS.user) asked = text;
    else if (turn === 'tool') asked = '';
  }
  visit.special(START);
  visit.text(CHAT_DEFAULTS.assistant);
  visit.text('\n');
  return { asked };
}

/** Counts and hashes a conversation, or refuses it as vLLM does. */
export function readPrompt(messages: readonly unknown[], engine: Engine): ChatPrompt | Refused {
  if (messages.length === 0) {
    return badRequest('Cannot apply chat template to an empty conversation. Provide at least one message.');
  }
  const broken = messages.findIndex(
    (message) => typeof message !== 'object' || message === null || !('role' in message),
  );
  if (broken >= 0) {
    const loc = ['body', 'messages', broken, 'role'];
    return invalidBody([{ type: 'missing', loc, msg: 'Field required', input: messages[broken] }]);
  }
  const scanner = createPromptScanner(engine.options.blockSize);
  const seen = visitMessages(messages, scanner, engine.options);
  if (seen === 'media') return badRequest(`${engine.options.servedNames[0] ?? ''} is not a multimodal model`);
  return { scan: scanner.result(), asked: seen.asked };
}

/** Token ids of a conversation. */
export function encodeMessages(messages: readonly unknown[], options: Options): number[] {
  const ids: number[] = [];
  visitMessages(messages, { text: (text) => ids.push(...encode(text)), special: (id) => ids.push(id) }, options);
  return ids;
}
