/** Members of a JSON object with some known names. */
type Members = Record<string, unknown>;

const isMembers = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * Joins a value with the next one: texts and lists are appended, objects are joined by member, and other values are
 * replaced. May change `before`.
 */
function join(before: unknown, after: unknown): unknown {
  if (after === null || after === undefined) return before ?? null;
  if (before === null || before === undefined) return after;
  if (typeof before === 'string' && typeof after === 'string') return before + after;
  if (Array.isArray(before) && Array.isArray(after)) {
    for (const item of after as unknown[]) before.push(item);
    return before;
  }
  if (isMembers(before) && isMembers(after)) {
    for (const [key, value] of Object.entries(after)) joinMember(before, key, value);
    return before;
  }
  return after;
}

/**
 * Joins one member. Rejects `__proto__`, with which an engine could change all objects; inherited properties do not
 * count as members.
 */
function joinMember(members: Members, key: string, value: unknown): void {
  if (key === '__proto__') return;
  members[key] = join(Object.hasOwn(members, key) ? members[key] : undefined, value);
}

interface Choice {
  readonly members: Members;
  readonly message: Members;
  readonly toolCalls: Members[];
}

/** Maximum tool calls of an answer; an engine may send any index. */
const toolCallsMax = 1024;

/** Joins a piece of a tool call. Each piece has the call's index; id and names are sent once, arguments grow. */
function joinToolCall(calls: Members[], piece: unknown): void {
  if (!isMembers(piece)) return;
  const { index, id, type, function: called, ...rest } = piece;
  const at = typeof index === 'number' ? index : calls.length;
  if (at >= toolCallsMax) return;
  const call = (calls[at] ??= { id: null, type: 'function', function: { name: '', arguments: '' } });
  if (typeof id === 'string') call['id'] = id;
  if (typeof type === 'string') call['type'] = type;
  call['function'] = join(call['function'], called);
  Object.assign(call, rest);
}

function joinChoice(
  choice: Choice,
  { delta, index: _index, text, logprobs, token_ids: tokenIds, ...rest }: Members,
): void {
  const { members, message, toolCalls } = choice;
  if (text !== undefined) members['text'] = join(members['text'], text);
  members['logprobs'] = join(members['logprobs'], logprobs);
  if (tokenIds !== undefined) members['token_ids'] = join(members['token_ids'], tokenIds);
  for (const [key, value] of Object.entries(rest)) {
    if (value !== null || members[key] === undefined) members[key] = value;
  }
  if (!isMembers(delta)) return;
  for (const [key, value] of Object.entries(delta)) {
    if (key === 'tool_calls' && Array.isArray(value)) for (const piece of value) joinToolCall(toolCalls, piece);
    else if (key === 'role') message[key] = value;
    else joinMember(message, key, value);
  }
}

function choiceAt(choices: Choice[], index: unknown): Choice {
  const at = typeof index === 'number' ? index : 0;
  return (choices[at] ??= { members: { index: at }, message: {}, toolCalls: [] });
}

function parseFrames(text: string): Members[] | null {
  const frames: Members[] = [];
  for (const line of Buffer.from(text, 'latin1').toString('utf8').split(/\r?\n/)) {
    if (!line.startsWith('data:')) continue;
    const data = line.slice(5).trim();
    if (data === '[DONE]') continue;
    const frame: unknown = JSON.parse(data);
    if (!isMembers(frame) || !Array.isArray(frame['choices'])) return null;
    frames.push(frame);
  }
  return frames;
}

function finishChoice({ members, message, toolCalls }: Choice, isChat: boolean): Members {
  if (!isChat) return members;
  const calls = toolCalls.filter((call) => call !== undefined);
  const whole = { role: 'assistant', content: null, refusal: null, ...message };
  return { ...members, message: calls.length === 0 ? whole : { ...whole, tool_calls: calls } };
}

/**
 * Merges a stream of chat or text completion chunks into the JSON answer.
 * @param text frames as latin1, with or without usage
 * @param usage the `usage` of the answer, replacing that of the frames
 * @param choicesExpected number of choices over all prompts
 * @returns JSON as latin1; null if the frames are incomplete or nested too deeply
 */
export function mergeFrames(text: string, usage: object, choicesExpected: number): string | null {
  try {
    const frames = parseFrames(text);
    return frames === null ? null : merge(frames, usage, choicesExpected);
  } catch {
    return null;
  }
}

function merge(frames: readonly Members[], usage: object, choicesExpected: number): string | null {
  const top: Members = {};
  const choices: Choice[] = [];
  let lastUsage: unknown = null;
  for (const { choices: list, usage: counted, ...rest } of frames) {
    for (const [key, value] of Object.entries(rest)) if (value !== null || top[key] === undefined) top[key] = value;
    if (!Array.isArray(list)) continue;
    if (list.length === 0) lastUsage = counted;
    for (const piece of list as unknown[]) if (isMembers(piece)) joinChoice(choiceAt(choices, piece['index']), piece);
  }
  const isFinished = (choice: Choice): boolean => typeof choice.members['finish_reason'] === 'string';
  if (
    choices.length !== choicesExpected ||
    !Array.from(choices).every((choice) => choice !== undefined && isFinished(choice))
  )
    return null;
  const isChat = top['object'] === 'chat.completion.chunk';
  const answer = {
    ...top,
    object: isChat ? 'chat.completion' : top['object'],
    choices: choices.map((choice) => finishChoice(choice, isChat)),
    usage: isMembers(lastUsage) ? withoutCost(lastUsage) : usage,
  };
  return Buffer.from(JSON.stringify(answer), 'utf8').toString('latin1');
}

/** Removes the cost, which concerns only the request that was charged. */
function withoutCost({ cost: _cost, ...usage }: Members): Members {
  return usage;
}

/**
 * Returns a JSON answer without the cost.
 * @param text JSON as latin1
 * @param hasCost true if `usage.cost` was added to the answer
 * @returns null if the text is not a JSON object
 */
export function plainAnswer(text: string, hasCost: boolean): string | null {
  if (!hasCost) return text;
  let answer: unknown;
  try {
    answer = JSON.parse(Buffer.from(text, 'latin1').toString('utf8'));
  } catch {
    return null;
  }
  if (!isMembers(answer)) return null;
  const { usage } = answer;
  const plain = isMembers(usage) ? { ...answer, usage: withoutCost(usage) } : answer;
  return Buffer.from(JSON.stringify(plain), 'utf8').toString('latin1');
}
