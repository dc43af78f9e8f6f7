import type { Body } from '#test/inference/inference-gateway.ts';
import type { CampaignPath, CampaignRequest } from './requests.ts';

/** A client's view of its request. */
export interface Seen {
  readonly request: CampaignRequest;
  /** 0 if no head arrived. */
  readonly status: number;
  readonly hasLeft: boolean;
  /** True if the whole answer arrived and reports no error. */
  readonly isComplete: boolean;
  /** The counts in a complete answer; null in a stream that shows none. */
  readonly usage: Usage | null;
  /** The last 300 characters, where an error is. */
  readonly tail: string;
}

export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
}

/** The last event of a complete stream, by path. */
const streamEnds: Readonly<Record<CampaignPath, RegExp>> = {
  '/v1/chat/completions': /^data: \[DONE\]$/m,
  '/v1/completions': /^data: \[DONE\]$/m,
  '/v1/responses': /"type":"response\.(?:completed|incomplete)"/,
  '/v1/messages': /"type":"message_stop"/,
  '/v1/embeddings': /^$/,
};

/** Sends a request and reads its answer up to the end, or until its client leaves. */
export async function sendRequest(url: string, key: string, request: CampaignRequest): Promise<Seen> {
  const { path, name, body, leave } = request;
  const leaving = new AbortController();
  const afterMs = leave !== null && 'afterMs' in leave ? leave.afterMs : null;
  const timer = afterMs === null ? undefined : setTimeout(() => leaving.abort(), afterMs);
  let [status, text, isWhole] = [0, '', false];
  try {
    const answer = await fetch(new URL(path, url), {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-client-request-id': name },
      body: JSON.stringify(body),
      signal: leaving.signal,
    });
    status = answer.status;
    const events = leave !== null && 'afterEvents' in leave ? leave.afterEvents : Infinity;
    for await (const bytes of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += bytes;
      if (events !== Infinity && text.split('\n\n').length > events) leaving.abort();
    }
    isWhole = true;
  } catch {
    // The client left, or the answer was cut off.
  } finally {
    clearTimeout(timer);
  }
  const isComplete = isWhole && status === 200 && isEnded(request, text);
  const usage = isComplete ? readUsage(request, text) : null;
  return { request, status, hasLeft: leaving.signal.aborted, isComplete, usage, tail: text.slice(-300) };
}

function isEnded({ stream, path }: CampaignRequest, text: string): boolean {
  return stream ? streamEnds[path].test(text) : text.endsWith('}');
}

/** Returns the counts of an answer in the form of its route. */
function readUsage({ stream, path }: CampaignRequest, text: string): Usage | null {
  const found = stream ? lastUsage(text) : JSON.parse(text).usage;
  if (found === null) return null;
  if (path === '/v1/messages') {
    // Anthropic's input tokens leave the cached ones out.
    const { input_tokens: input, cache_read_input_tokens: read, cache_creation_input_tokens: created } = found;
    return { inputTokens: input + (read ?? 0) + (created ?? 0), outputTokens: found.output_tokens };
  }
  return {
    inputTokens: found.input_tokens ?? found.prompt_tokens,
    outputTokens: found.output_tokens ?? found.completion_tokens ?? 0,
  };
}

/** Merges what the events of a stream say: `message_start` counts the input, `message_delta` the output. */
function lastUsage(text: string): Body {
  const events = [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, data = '']): Body => JSON.parse(data));
  const found = events.map(({ usage, message, response }) => usage ?? message?.usage ?? response?.usage);
  const usages = found.filter((usage) => usage !== undefined && usage !== null);
  return usages.length === 0 ? null : Object.assign({}, ...usages);
}
