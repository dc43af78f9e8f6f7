/** When usage is reported: never, in a chunk of its own at the end, or with every chunk and at the end. */
export type Usage = 'none' | 'final' | 'continuous';

/** Totals of one request, as they are billed. */
export interface Totals {
  promptTokens: number;
  completionTokens: number;
  reasoningTokens: number;
  cachedTokens: number;
  createdTokens: number;
}

/** How a server and an endpoint print usage. */
export interface UsageStyle {
  /** `--enable-prompt-tokens-details`. */
  details: boolean;
  /** A reasoning parser is configured. */
  reasoning: boolean;
  chat: boolean;
}

/** Usage as it stands in a running chunk; `tokens` are those of this choice only. */
export function runningUsage(style: UsageStyle, promptTokens: number, tokens: number, reasoning: number): string {
  const counts = `{"prompt_tokens":${promptTokens},"total_tokens":${promptTokens + tokens},"completion_tokens":${tokens}`;
  if (!style.chat) return `${counts}}`;
  return `${counts},"completion_tokens_details":${style.reasoning ? `{"reasoning_tokens":${reasoning}}` : 'null'}}`;
}

function counts(totals: Totals): string {
  const { promptTokens, completionTokens } = totals;
  return `"prompt_tokens":${promptTokens},"total_tokens":${promptTokens + completionTokens},"completion_tokens":${completionTokens}`;
}

/** Usage of the chunk of its own at a stream's end, where nulls are left out. */
export function finalUsage(style: UsageStyle, totals: Totals): string {
  const created = style.chat ? `,"created_cache_tokens":${totals.createdTokens}` : '';
  const prompt = style.details ? `,"prompt_tokens_details":{"cached_tokens":${totals.cachedTokens}${created}}` : '';
  const reasoning =
    style.chat && style.reasoning ? `,"completion_tokens_details":{"reasoning_tokens":${totals.reasoningTokens}}` : '';
  return `{${counts(totals)}${prompt}${reasoning}}`;
}

/** Usage of a JSON answer, where nulls are written. */
export function jsonUsage(style: UsageStyle, totals: Totals): string {
  const created = style.chat ? totals.createdTokens : 'null';
  const prompt = style.details
    ? `{"cached_tokens":${totals.cachedTokens},"created_cache_tokens":${created},"multimodal_tokens":null}`
    : 'null';
  const reasoning = style.chat && style.reasoning ? `{"reasoning_tokens":${totals.reasoningTokens}}` : 'null';
  return `{${counts(totals)},"prompt_tokens_details":${prompt},"completion_tokens_details":${reasoning}}`;
}
