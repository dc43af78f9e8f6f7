/**
 * The knobs that make the stand-in slow, wrong or dead on purpose. Each is a flag of the process (a default for every
 * request, `--ttft-ms 50`) and a member of a request body's `standin` object (that request only, `{"ttft_ms":50}`).
 */
export interface Knobs {
  /** Milliseconds until the first token. */
  ttft_ms?: number;
  /** Milliseconds between tokens; 0 is as fast as the event loop turns. */
  tpot_ms?: number;
  /** Random spread of both times as a fraction: 0.2 is plus or minus 20 %. */
  jitter?: number;
  /** Exact number of output tokens of each choice (still bounded by max_tokens). */
  output_tokens?: number;
  /** How an answer of `output_tokens` ends: `stop` spends the last token on the end marker, `length` does not. */
  finish?: 'stop' | 'length';
  /** Tokens of thought before the answer; needs `--reasoning-parser`. */
  reasoning_tokens?: number;
  /** The thought itself, in place of made-up text. */
  reasoning_text?: string;
  /** The answer itself, in place of made-up text; a list holds one for each choice. */
  text?: string | string[];
  /** Call a tool or never; a string names the tool. Overrides what `tool_choice: "auto"` would do. */
  tool_call?: boolean | string;
  /** The arguments of a tool call as JSON text, in place of sampled ones. */
  tool_arguments?: string;
  /** Answer with this HTTP status at once. */
  status?: number;
  /** Message of the injected status. */
  status_message?: string;
  /** Break after so many tokens: an error frame and `[DONE]`, or a 500 for a JSON request. */
  error_after?: number;
  /** Destroy the connection after so many tokens. */
  cut_after?: number;
  /** Reset the connection (RST) after so many tokens; 0 is before the headers. */
  reset_after?: number;
  /** Kill the whole engine (-9) after so many tokens; 0 is before the headers. */
  die_after?: number;
  /** With `cut_after`: write half a frame first. */
  cut_mid_frame?: boolean;
  /** Send a frame that is not JSON after so many tokens, then go on. */
  garbage_after?: number;
  /** Answer with bytes that are not HTTP. */
  garbage_http?: boolean;
  /** Say nothing any more: before the headers, after them, or after `hang_after` tokens. */
  hang?: 'before_headers' | 'after_headers' | 'after_tokens';
  hang_after?: number;
  /** Freeze the engine at this request: nothing makes a token any more, and probes answer. `/resume` ends it. */
  freeze?: boolean;
  /** End with `finish_reason: "abort"` after so many tokens, unasked. */
  abort_after?: number;
  /** Keep a stream's frames back and write them all at once with its end. */
  one_write?: boolean;
  /** Send the comment of `--sse-keep-alive-interval` before each frame. */
  comments?: boolean;
}

type KnobKind = 'number' | 'string' | 'boolean' | 'boolean-or-string' | 'texts';

const KINDS: Record<keyof Knobs, KnobKind> = {
  ttft_ms: 'number',
  tpot_ms: 'number',
  jitter: 'number',
  output_tokens: 'number',
  finish: 'string',
  reasoning_tokens: 'number',
  reasoning_text: 'string',
  text: 'texts',
  tool_call: 'boolean-or-string',
  tool_arguments: 'string',
  status: 'number',
  status_message: 'string',
  error_after: 'number',
  cut_after: 'number',
  reset_after: 'number',
  die_after: 'number',
  cut_mid_frame: 'boolean',
  garbage_after: 'number',
  garbage_http: 'boolean',
  hang: 'string',
  hang_after: 'number',
  freeze: 'boolean',
  abort_after: 'number',
  one_write: 'boolean',
  comments: 'boolean',
};

/** Names of all knobs, as they are written in a request body. */
export const KNOB_NAMES: readonly string[] = Object.keys(KINDS);

function fits(kind: KnobKind, value: unknown): boolean {
  if (kind === 'boolean-or-string') return typeof value === 'boolean' || typeof value === 'string';
  if (kind === 'texts' && Array.isArray(value)) return value.every((item) => typeof item === 'string');
  if (kind === 'texts') return typeof value === 'string';
  return typeof value === kind && !(kind === 'number' && !(Number(value) >= 0));
}

function kindOf(name: string): KnobKind | undefined {
  return Object.hasOwn(KINDS, name) ? KINDS[name as keyof Knobs] : undefined;
}

/** Reads a flag's text as a knob's value; undefined when the knob or the value is not known. */
export function knobFromText(name: string, text: string): Knobs | undefined {
  const kind = kindOf(name);
  if (kind === undefined) return undefined;
  let value: unknown = text;
  if (kind === 'number') value = text.trim() === '' ? Number.NaN : Number(text);
  else if (kind.startsWith('boolean') && (text === 'true' || text === 'false')) value = text === 'true';
  return fits(kind, value) ? { [name]: value } : undefined;
}

/**
 * Lays a request's `standin` member over the process's knobs. What is not a knob, or has the wrong type, is left out:
 * the stand-in must not refuse a request that vLLM would take.
 */
export function mergeKnobs(base: Knobs, member: unknown): Knobs {
  if (typeof member !== 'object' || member === null) return base;
  const merged: Record<string, unknown> = { ...base };
  for (const [name, value] of Object.entries(member)) {
    const kind = kindOf(name);
    if (kind !== undefined && fits(kind, value)) merged[name] = value;
  }
  return merged;
}

/** The fixed text of one choice, or null. */
export function textFor(knobs: Knobs, index: number): string | null {
  return (Array.isArray(knobs.text) ? knobs.text[index] : knobs.text) ?? null;
}
