import { type IncomingMessage, request } from 'node:http';
import { type Body, chatPath } from '#test/inference/inference-gateway.ts';

/** A client's request. */
export interface Ask {
  readonly secret: string;
  readonly stream: boolean;
  readonly maxTokens: number;
  /** Knobs of the stand-in engine. */
  readonly standin: Readonly<Record<string, number | string | boolean>>;
  /** Duration that the engine was given, in milliseconds. */
  readonly plannedMs: number;
  /** Leaves after so many milliseconds; null stays. */
  readonly leaveMs: number | null;
  readonly idempotencyKey: string | null;
  /** The client's own name of the request, the same when it is repeated. */
  readonly name: string;
  readonly model?: string;
  /** How long it waits for an answer; what has not come by then does not count as answered. */
  readonly patienceMs?: number;
}

/** A client's view of a request. */
export interface Seen {
  readonly ask: Ask;
  readonly gateway: number;
  /** The process that was asked. */
  readonly pid: number;
  /** `x-request-id`; null where no head came. */
  readonly id: string | null;
  /** 0 where no head came. */
  readonly status: number;
  /** Code of an error, also of one in a stream. */
  readonly code: string | null;
  readonly retryAfter: string | null;
  /** Every byte came, and they say that it went well. */
  readonly complete: boolean;
  /** The answer is another request's, by its Idempotency-Key. */
  readonly replayed: boolean;
  /** The client left, as it had meant to, before the end. */
  readonly hasLeft: boolean;
  readonly inputTokens: number | null;
  readonly outputTokens: number | null;
  /** Content frames of a stream. */
  readonly frames: number;
  /** Remaining requests of the key in this minute, as the answer says. */
  readonly remaining: number | null;
  readonly beganMs: number;
  readonly headMs: number | null;
  readonly endedMs: number;
  /** The longest that a stream said nothing. */
  readonly longestGapMs: number;
}

export interface Where {
  readonly gateway: number;
  readonly pid: number;
  readonly url: string;
}

const usualPatienceMs = 60_000;

const nothing = {
  id: null,
  status: 0,
  code: null,
  retryAfter: null,
  complete: false,
  replayed: false,
  hasLeft: false,
  inputTokens: null,
  outputTokens: null,
  frames: 0,
  remaining: null,
  headMs: null,
  longestGapMs: 0,
};

/** Asks once and looks at everything that comes. Never throws: what went wrong is what was seen. */
export async function askOnce(where: Where, ask: Ask): Promise<Seen> {
  const { gateway, pid } = where;
  const base = { ...nothing, ask, gateway, pid, beganMs: performance.now() };
  const { head, text, longestGapMs, isWhole, isCut } = await exchange(where.url, ask);
  const body = ask.stream && (head.status ?? 0) < 300 ? streamOf(text) : jsonOf(text, head.status ?? 0);
  const complete = isWhole && body.complete === true;
  const hasLeft = isCut && ask.leaveMs !== null;
  return { ...base, ...head, ...body, complete, hasLeft, longestGapMs, endedMs: performance.now() };
}

interface Exchanged {
  readonly head: Partial<Seen>;
  readonly text: string;
  readonly longestGapMs: number;
  /** The body came to its proper end. */
  readonly isWhole: boolean;
  /** By this side. */
  readonly isCut: boolean;
}

/** On a connection of its own: that an old one ends at a bad moment is nothing that is looked at here. */
function exchange(url: string, ask: Ask): Promise<Exchanged> {
  const headers: Record<string, string> = {
    authorization: `Bearer ${ask.secret}`,
    'content-type': 'application/json',
    'x-client-request-id': ask.name,
    ...(ask.idempotencyKey !== null && { 'idempotency-key': ask.idempotencyKey }),
  };
  return new Promise((resolve) => {
    let head: Partial<Seen> = {};
    let text = '';
    let isWhole = false;
    let isCut = false;
    let longestGapMs = 0;
    const sent = request(new URL(chatPath, url), { method: 'POST', headers, agent: false }, (answer) => {
      head = headOf(answer);
      let lastMs = performance.now();
      answer.setEncoding('utf8').on('data', (part: string) => {
        text += part;
        longestGapMs = Math.max(longestGapMs, performance.now() - lastMs);
        lastMs = performance.now();
      });
      answer.on('end', () => (isWhole = answer.complete));
      answer.on('error', () => undefined);
    });
    const timer = setTimeout(
      () => {
        isCut = true;
        sent.destroy();
      },
      ask.leaveMs ?? ask.patienceMs ?? usualPatienceMs,
    );
    sent.on('error', () => undefined);
    sent.on('close', () => {
      clearTimeout(timer);
      resolve({ head, text, longestGapMs, isWhole, isCut });
    });
    sent.end(JSON.stringify(bodyOf(ask)));
  });
}

function bodyOf(ask: Ask): object {
  return {
    model: ask.model ?? 'chat',
    messages: [{ role: 'user', content: `Tell me of ${ask.name}.` }],
    max_tokens: ask.maxTokens,
    ignore_eos: true,
    standin: ask.standin,
    ...(ask.stream && { stream: true, stream_options: { include_usage: true } }),
  };
}

function headOf({ statusCode = 0, headers }: IncomingMessage): Partial<Seen> {
  const text = (name: string): string | null => headers[name]?.toString() ?? null;
  const remaining = text('x-ratelimit-remaining');
  return {
    status: statusCode,
    id: text('x-request-id'),
    replayed: text('idempotent-replayed') === 'true',
    retryAfter: text('retry-after'),
    remaining: remaining === null ? null : Number(remaining),
    headMs: performance.now(),
  };
}

function streamOf(text: string): Partial<Seen> {
  const frames = text.split('\n').filter((line) => line.startsWith('data: {'));
  const parsed = frames.map(parseFrame);
  const code = parsed.find((frame) => frame?.error !== undefined)?.error?.code ?? null;
  const usage: Body = parsed.findLast((frame) => typeof frame?.usage?.completion_tokens === 'number')?.usage ?? null;
  const isContent = (frame: Body): boolean => typeof frame?.choices?.[0]?.delta?.content === 'string';
  // The first frame says who speaks, and nothing.
  const content = parsed.filter((frame) => isContent(frame) && frame.choices[0].delta.content !== '').length;
  return {
    code,
    complete: text.endsWith('data: [DONE]\n\n') && code === null && !parsed.includes(null),
    inputTokens: usage?.prompt_tokens ?? null,
    outputTokens: usage?.completion_tokens ?? null,
    frames: content,
  };
}

function parseFrame(frame: string): Body {
  try {
    return JSON.parse(frame.slice('data: '.length));
  } catch {
    return null;
  }
}

function jsonOf(text: string, status: number): Partial<Seen> {
  let body: Body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // No answer that anybody could use.
  }
  const usage: Body = body?.usage ?? null;
  return {
    code: body?.error?.code ?? null,
    complete: status === 200 && usage !== null,
    inputTokens: usage?.prompt_tokens ?? null,
    outputTokens: usage?.completion_tokens ?? null,
  };
}
