export interface FrameOptions {
  /** True if the client requested the final chunk with the usage. */
  readonly wantsUsage: boolean;
  /**
   * True if the client requested usage on every chunk. The whole answer is sent at once, so every chunk has the same
   * usage.
   */
  readonly wantsRunningUsage: boolean;
  /** Text of `usage.cost`; null if not requested. */
  readonly costText: string | null;
}

type Members = Readonly<Record<string, unknown>>;

const membersOf = (value: unknown): Members => (typeof value === 'object' && value !== null ? (value as Members) : {});
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

const withoutNulls = (members: Members): Members =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== null));

/** Returns the chunks of one choice of a chat: role, reasoning, content or tool calls, and finish reason. */
function chatChunks({ index, message, finish_reason: finishReason, logprobs, ...rest }: Members): Members[] {
  const { role, reasoning, tool_calls: toolCalls, ...otherFields } = withoutNulls(membersOf(message));
  const chunk = (delta: Members, more: Members = {}): Members => ({
    index,
    delta,
    logprobs: null,
    finish_reason: null,
    ...more,
  });
  const calls = listOf(toolCalls).map((call, at) => ({ index: at, ...membersOf(call) }));
  const delta = calls.length === 0 ? otherFields : { ...otherFields, tool_calls: calls };
  const hasLogprobs = logprobs !== null && logprobs !== undefined;
  const isSilent =
    Object.keys(otherFields).length === 0 || (Object.keys(otherFields).length === 1 && otherFields['content'] === '');
  return [
    chunk({ role: role ?? 'assistant', content: '' }),
    ...(typeof reasoning === 'string' && reasoning !== '' ? [chunk({ reasoning })] : []),
    ...(isSilent && calls.length === 0 && !hasLogprobs ? [] : [chunk(delta, { logprobs: logprobs ?? null })]),
    chunk({}, { finish_reason: finishReason, ...withoutNulls(rest) }),
  ];
}

/**
 * Converts a JSON answer to the stream that a client requested.
 * @param text JSON of a chat or text completion as latin1
 * @returns frames as latin1, without the end mark
 */
export function makeFrames(text: string, options: FrameOptions): string {
  const {
    choices,
    usage,
    object,
    id,
    created,
    model,
    system_fingerprint: fingerprint,
  } = membersOf(JSON.parse(Buffer.from(text, 'latin1').toString('utf8')));
  const isChat = object === 'chat.completion';
  const head = { id, object: isChat ? 'chat.completion.chunk' : object, created, model };
  const counted = options.costText === null ? usage : { ...membersOf(usage), cost: Number(options.costText) };
  const running = options.wantsRunningUsage ? { usage: counted } : {};
  const pieces = listOf(choices).flatMap((choice) => (isChat ? chatChunks(membersOf(choice)) : [membersOf(choice)]));
  const chunks: Members[] = pieces.map((piece) => ({ ...head, choices: [piece], ...running }));
  if (options.wantsUsage)
    chunks.push({ ...head, choices: [], usage: counted, system_fingerprint: fingerprint ?? null });
  const frames = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('');
  return Buffer.from(frames, 'utf8').toString('latin1');
}
