import type { FrameOptions } from './make-frames.ts';

/** Answers of `/v1/messages`: a stream sends the blocks of the JSON answer one after another. */

type Members = Readonly<Record<string, unknown>>;

const isMembers = (value: unknown): value is Members => typeof value === 'object' && value !== null;
const membersOf = (value: unknown): Members => (isMembers(value) ? value : {});
const listOf = (value: unknown): readonly Members[] =>
  Array.isArray(value) ? (value as unknown[]).map((item) => membersOf(item)) : [];
const decode = (text: string): string => Buffer.from(text, 'latin1').toString('utf8');
const encode = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');
const count = (value: unknown): number => (typeof value === 'number' ? value : 0);

/** Returns the start of a block, and the deltas with its content. */
function blockParts(block: Members): { readonly begun: Members; readonly deltas: readonly Members[] } {
  const { type } = block;
  if (type === 'tool_use') {
    const input = { type: 'input_json_delta', partial_json: JSON.stringify(block['input'] ?? {}) };
    return { begun: { ...block, input: {} }, deltas: [input] };
  }
  if (type === 'thinking') {
    const { thinking, signature } = block;
    const signed = typeof signature === 'string' ? [{ type: 'signature_delta', signature }] : [];
    return { begun: { type, thinking: '' }, deltas: [{ type: 'thinking_delta', thinking }, ...signed] };
  }
  if (type === 'text') return { begun: { ...block, text: '' }, deltas: [{ type: 'text_delta', text: block['text'] }] };
  return { begun: block, deltas: [] };
}

function blockEvents(block: Members, index: number): Members[] {
  const { begun, deltas } = blockParts(block);
  return [
    { type: 'content_block_start', content_block: begun, index },
    ...deltas.map((delta) => ({ type: 'content_block_delta', delta, index })),
    { type: 'content_block_stop', index },
  ];
}

/**
 * Converts a JSON answer to the events of a stream.
 * @param text JSON of a message as latin1
 * @returns all frames as latin1, including the last
 */
export function makeMessageFrames(text: string, { costText }: FrameOptions): string {
  const kept = membersOf(JSON.parse(decode(text)));
  const { content, stop_reason: reason = null, stop_sequence: sequence, usage, ...head } = kept;
  const counts = membersOf(usage);
  const { input_tokens: input, cache_read_input_tokens: read, cache_creation_input_tokens: written } = counts;
  const begun = { input_tokens: count(input) + count(read) + count(written), output_tokens: 0 };
  const ended = sequence === undefined ? { stop_reason: reason } : { stop_reason: reason, stop_sequence: sequence };
  const events: Members[] = [
    {
      type: 'message_start',
      message: { ...head, content: [], stop_reason: null, stop_sequence: null, usage: begun },
    },
    ...listOf(content).flatMap(blockEvents),
    {
      type: 'message_delta',
      delta: ended,
      usage: costText === null ? counts : { ...counts, cost: Number(costText) },
    },
    { type: 'message_stop' },
  ];
  return encode(events.map((event) => `event: ${String(event['type'])}\ndata: ${JSON.stringify(event)}\n\n`).join(''));
}

/** Text members of a block, by the type of their deltas. */
const deltaMembers: Readonly<Record<string, string>> = {
  text_delta: 'text',
  thinking_delta: 'thinking',
  signature_delta: 'signature',
  input_json_delta: 'partial_json',
};

class MessageMerger {
  #message: Members | null = null;
  #end: Members | null = null;
  #isWhole = false;
  readonly #blocks = new Map<unknown, Record<string, unknown>>();

  /** @returns true if the event belongs to a message */
  add(event: Members): boolean {
    switch (event['type']) {
      case 'message_start':
        this.#message = membersOf(event['message']);
        return true;
      case 'content_block_start':
        this.#blocks.set(event['index'], { ...membersOf(event['content_block']) });
        return true;
      case 'content_block_delta':
        return this.#delta(membersOf(event['delta']), this.#blocks.get(event['index']));
      case 'message_delta':
        this.#end = event;
        return true;
      case 'message_stop':
        this.#isWhole = true;
        return true;
      default:
        return event['type'] === 'content_block_stop' || event['type'] === 'ping';
    }
  }

  #delta(delta: Members, block: Record<string, unknown> | undefined): boolean {
    const member = deltaMembers[String(delta['type'])];
    if (member === undefined || block === undefined) return false;
    const before = block[member];
    block[member] = (typeof before === 'string' ? before : '') + String(delta[member]);
    return true;
  }

  /** Returns the message without null members, as engines send it in JSON; null if the message is incomplete. */
  message(): Members | null {
    if (this.#message === null || this.#end === null || !this.#isWhole) return null;
    const { content: _content, usage: first, ...head } = this.#message;
    // Some engines send the prompt's count only at the start; the counts at the end take precedence.
    const { cost: _cost, ...usage } = { ...membersOf(first), ...membersOf(this.#end['usage']) };
    const content = [...this.#blocks.values()].map(wholeBlock);
    const whole = {
      ...head,
      // An empty answer still has a text block.
      content: content.length === 0 ? [{ type: 'text', text: '' }] : content,
      ...membersOf(this.#end['delta']),
      usage,
    };
    return Object.fromEntries(Object.entries(whole).filter(([, value]) => value !== null));
  }
}

/** @throws SyntaxError if a tool's input is not JSON */
function wholeBlock({ partial_json: json, ...block }: Record<string, unknown>): Members {
  return typeof json === 'string' ? { ...block, input: JSON.parse(json) as unknown } : block;
}

/**
 * Merges a stream into the JSON answer.
 * @param text all frames as latin1
 * @returns JSON as latin1, without the cost; null if the frames are not a complete answer
 */
export function mergeMessageFrames(text: string): string | null {
  const merger = new MessageMerger();
  try {
    for (const line of decode(text).split(/\r?\n/)) {
      if (line.startsWith('data:') && !merger.add(membersOf(JSON.parse(line.slice(5))))) return null;
    }
    const message = merger.message();
    return message === null ? null : encode(JSON.stringify(message));
  } catch {
    return null;
  }
}
