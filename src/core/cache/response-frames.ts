import type { FrameOptions } from './make-frames.ts';

/** Answers of `/v1/responses`: the last event of a stream contains the complete JSON answer. */

type Members = Readonly<Record<string, unknown>>;

const membersOf = (value: unknown): Members => (typeof value === 'object' && value !== null ? (value as Members) : {});
const listOf = (value: unknown): readonly Members[] =>
  Array.isArray(value) ? (value as unknown[]).map((item) => membersOf(item)) : [];
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');
const decode = (text: string): string => Buffer.from(text, 'latin1').toString('utf8');
const encode = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');

/** Returns the events that send one part of an item. */
function partEvents(part: Members, place: Members): Members[] {
  const { type } = part;
  const isThought = type === 'reasoning_text';
  const name = isThought ? 'reasoning_text' : type === 'refusal' ? 'refusal' : 'output_text';
  const member = type === 'refusal' ? 'refusal' : 'text';
  const text = textOf(part[member]);
  const around = isThought ? 'response.reasoning_part' : 'response.content_part';
  const logprobs = name === 'output_text' ? { logprobs: part['logprobs'] ?? [] } : {};
  return [
    { type: `${around}.added`, ...place, part: { ...part, [member]: '' } },
    { type: `response.${name}.delta`, ...place, delta: text, ...logprobs },
    { type: `response.${name}.done`, ...place, [member]: text, ...logprobs },
    { type: `${around}.done`, ...place, part },
  ];
}

function callEvents({ type: kind, name, input, arguments: given }: Members, place: Members): Members[] {
  if (kind === 'custom_tool_call') {
    const type = 'response.custom_tool_call_input';
    return [
      { type: `${type}.delta`, ...place, delta: input },
      { type: `${type}.done`, ...place, input },
    ];
  }
  const type = 'response.function_call_arguments';
  return [
    { type: `${type}.delta`, ...place, delta: given },
    { type: `${type}.done`, ...place, name, arguments: given },
  ];
}

/** Members that calls fill while they stream. */
const emptyMember: Readonly<Record<string, string>> = { function_call: 'arguments', custom_tool_call: 'input' };

function itemEvents(item: Members, index: number): Members[] {
  const place = { item_id: item['id'], output_index: index };
  const emptied = emptyMember[textOf(item['type'])];
  const isCall = emptied !== undefined;
  const begun = { ...item, status: 'in_progress', ...(isCall ? { [emptied]: '' } : { content: [] }) };
  const parts = listOf(item['content']);
  const inner = isCall
    ? callEvents(item, place)
    : parts.flatMap((part, at) => partEvents(part, { ...place, content_index: at }));
  return [
    { type: 'response.output_item.added', output_index: index, item: begun },
    ...inner,
    { type: 'response.output_item.done', output_index: index, item },
  ];
}

/**
 * Converts a JSON answer to the events of a stream.
 * @param text JSON of a response as latin1
 * @returns all frames as latin1, including the last
 */
export function makeResponseFrames(text: string, { costText }: FrameOptions): string {
  const kept = membersOf(JSON.parse(decode(text)));
  const usage = costText === null ? kept['usage'] : { ...membersOf(kept['usage']), cost: Number(costText) };
  const response: Members = { ...kept, usage };
  const begun = { ...response, status: 'in_progress', incomplete_details: null, output: [], usage: null };
  const events: Members[] = [
    { type: 'response.created', response: begun },
    { type: 'response.in_progress', response: begun },
    ...listOf(response['output']).flatMap(itemEvents),
    { type: 'response.completed', response },
  ];
  const frames = events.map(
    (event, at) => `event: ${textOf(event['type'])}\ndata: ${JSON.stringify({ ...event, sequence_number: at })}\n\n`,
  );
  return encode(frames.join(''));
}

/**
 * Extracts the JSON answer from the end of a stream.
 * @param last the last frames as latin1
 * @returns JSON as latin1, without the cost; null if the frames are not the end of a complete answer
 */
export function mergeResponseFrames(last: string): string | null {
  const data = last.split(/\r?\n/).findLast((line) => line.startsWith('data:'));
  if (data === undefined) return null;
  try {
    const { response } = membersOf(JSON.parse(decode(data.slice(5))));
    if (membersOf(response)['object'] !== 'response') return null;
    const { cost: _cost, ...usage } = membersOf(membersOf(response)['usage']);
    return encode(JSON.stringify({ ...membersOf(response), usage }));
  } catch {
    return null;
  }
}
