import type { InferenceKey } from './api.ts';
import type { Random } from '#test/random.ts';

/** One request of an ordinary day: any route, JSON or a stream. Some clients leave before the end. */
export interface DayRequest {
  readonly path: DayPath;
  readonly secret: string;
  readonly stream: boolean;
  readonly body: object;
  /** The client leaves after this many milliseconds; null if it stays. */
  readonly leaveMs: number | null;
}

export interface DayAnswer {
  readonly request: DayRequest;
  /** `x-request-id`; null if the client left before the head of the answer. */
  readonly id: string | null;
  /** 0 without a head. */
  readonly status: number;
  /** The last 200 characters of the body, where an error is. */
  readonly tail: string;
  /** True if the whole answer arrived and reports no error. */
  readonly isComplete: boolean;
  readonly hasLeft: boolean;
}

type DayPath = keyof typeof bodies;

interface Draw {
  readonly text: string;
  readonly tokens: number;
  readonly stream: boolean;
  readonly wantsUsage: boolean;
}

const messages = ({ text }: Draw): object[] => [{ role: 'user', content: text }];

const bodies = {
  '/v1/chat/completions': (draw: Draw): object => ({
    model: 'chat',
    messages: messages(draw),
    max_tokens: draw.tokens,
    ...(draw.wantsUsage && { stream_options: { include_usage: true } }),
  }),
  '/v1/completions': ({ text, tokens }: Draw): object => ({ model: 'chat', prompt: text, max_tokens: tokens }),
  '/v1/responses': ({ text, tokens }: Draw): object => ({ model: 'chat', input: text, max_output_tokens: tokens }),
  '/v1/messages': (draw: Draw): object => ({ model: 'chat', messages: messages(draw), max_tokens: draw.tokens }),
  '/v1/embeddings': ({ text }: Draw): object => ({ model: 'embed', input: [text, text.slice(0, 40)] }),
};

/** Paths as often as they are drawn, of 20. */
const shares: readonly (readonly [DayPath, number])[] = [
  ['/v1/chat/completions', 10],
  ['/v1/completions', 2],
  ['/v1/responses', 2],
  ['/v1/messages', 3],
  ['/v1/embeddings', 3],
];
const paths = shares.flatMap(([path, share]) => Array.from({ length: share }, () => path));

/** The last event of a complete stream. */
const streamEnds: Readonly<Record<DayPath, RegExp>> = {
  '/v1/chat/completions': /data: \[DONE\]/,
  '/v1/completions': /data: \[DONE\]/,
  '/v1/responses': /"type":"response\.(?:completed|incomplete)"/,
  '/v1/messages': /"type":"message_stop"/,
  '/v1/embeddings': /"usage"/,
};

const leaving = 0.1;
const wordsMax = 400;
const outputTokensMax = 80;
const paceMsMax = 8;
const words = 'the gateway counts each token once and charges what an engine counted of a complete answer'.split(' ');

/** Draws a request. A seed draws the same requests again. */
export function drawRequest(random: Random, keys: readonly InferenceKey[]): DayRequest {
  const path = random.pick(paths);
  const stream = random.chance(0.6) && path !== '/v1/embeddings';
  const text = Array.from({ length: 1 + random.below(wordsMax) }, () => random.pick(words)).join(' ');
  const tokens = 1 + random.below(outputTokensMax);
  const [firstMs, paceMs] = [random.below(20), random.below(paceMsMax)];
  const draw = { text, tokens, stream, wantsUsage: stream && random.chance(0.5) };
  const leaveAt = random.next();
  return {
    path,
    secret: random.pick(keys).secret,
    stream,
    body: { ...bodies[path](draw), stream, standin: { ttft_ms: firstMs, tpot_ms: paceMs } },
    leaveMs: random.chance(leaving) ? 5 + leaveAt * (firstMs + paceMs * tokens) : null,
  };
}

/** Sends a request. Never throws: a failure is an answer that is not complete. */
export async function sendRequest(url: string, request: DayRequest): Promise<DayAnswer> {
  const { path, secret, stream, body, leaveMs } = request;
  const leave = new AbortController();
  const timer = leaveMs === null ? undefined : setTimeout(() => leave.abort(), leaveMs);
  const answer = { request, id: null as string | null, status: 0, tail: '', isComplete: false };
  try {
    const response = await fetch(new URL(path, url), {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: leave.signal,
    });
    answer.status = response.status;
    answer.id = response.headers.get('x-request-id');
    const text = await response.text();
    answer.tail = text.slice(-200);
    const isWhole = (stream ? streamEnds[path] : /"usage"/).test(text);
    answer.isComplete = response.status === 200 && isWhole && !text.includes('"error":{');
  } catch {
    // The client left, or the answer was cut off.
  } finally {
    clearTimeout(timer);
  }
  return { ...answer, hasLeft: leave.signal.aborted };
}
