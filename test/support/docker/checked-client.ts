import { appendFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { type Body, chatPath } from '#test/inference/inference-gateway.ts';
import type { TestGateway } from '#test/gateway.ts';

/** Requests of clients and operators over HTTP, and their answers. */

/** Far beyond what anything takes, so that a busy machine fails nothing. */
const waitMs = 180_000;

export interface Answer {
  readonly status: number;
  /** It came to its proper end. */
  readonly ok: boolean;
  readonly text: string;
  readonly requestId: string;
  readonly retryAfter: string | null;
  /** Milliseconds since the Unix epoch. */
  readonly sentAtMs: number;
  /** null for what is not a stream, or broke before. */
  readonly firstTokenMs: number | null;
  readonly outputTokens: number;
}

export interface Caller {
  /** A chat; streamed when the fields say so. Never rejects: what broke is not `ok`. */
  readonly chat: (model: string, fields?: object) => Promise<Answer>;
  /** The same, told when the first token is there. */
  readonly begin: (model: string, fields?: object) => { begun: Promise<void>; ended: Promise<Answer> };
  readonly admin: (method: string, path: string) => Promise<Body>;
  /** An engine as operators see it. */
  readonly engine: (id: string) => Promise<Body>;
  /** Chats without a pause, so many at once, until told to stop. */
  readonly load: (model: string, workers: number, fields?: object) => Load;
}

export interface Load {
  readonly answers: readonly Answer[];
  /** Waits until so many more were answered well. */
  more(count: number): Promise<void>;
  /** All answers, once the last has come. */
  stop(): Promise<readonly Answer[]>;
}

export function createCaller(url: string, key: string): Caller {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const chat = (model: string, fields: object, onToken: () => void): Promise<Answer> => {
    const messages = [{ role: 'user', content: 'Hello' }];
    const body = JSON.stringify({ model, messages, max_tokens: 512, ...fields });
    return send(new URL(chatPath, url), { method: 'POST', headers, body }, onToken);
  };
  const begin: Caller['begin'] = (model, fields = {}) => {
    const begun = Promise.withResolvers<void>();
    const ended = chat(model, { stream: true, ...fields }, () => begun.resolve()).then((answer) => {
      if (answer.firstTokenMs === null) begun.reject(new Error(`it did not begin: ${answer.status} ${answer.text}`));
      return answer;
    });
    return { begun: begun.promise, ended };
  };
  const admin: Caller['admin'] = async (method, path) => {
    const answer = await fetch(new URL(path, url), { method, headers });
    const body: Body = await answer.json();
    if (!answer.ok) throw new Error(`${method} ${path}: ${JSON.stringify(body)}`);
    return body;
  };
  const once: Caller['chat'] = (model, fields = {}) => chat(model, fields, () => undefined);
  return {
    chat: once,
    begin,
    admin,
    engine: (id) => admin('GET', `/v1/admin/engines/${encodeURIComponent(id)}`),
    load: (model, workers, fields) => startLoad(() => once(model, fields), workers),
  };
}

async function send(url: URL, init: RequestInit, onToken: () => void): Promise<Answer> {
  const sentAtMs = Date.now();
  let got = { status: 0, text: '', requestId: '', retryAfter: null as string | null };
  let firstTokenMs: number | null = null;
  try {
    const answer = await fetch(url, init);
    const requestId = answer.headers.get('x-request-id') ?? '';
    got = { ...got, status: answer.status, requestId, retryAfter: answer.headers.get('retry-after') };
    const decoder = new TextDecoder();
    for await (const chunk of answer.body ?? []) {
      got.text += decoder.decode(chunk, { stream: true });
      if (firstTokenMs === null && /"delta":\{[^}]*"content":"[^"]/.test(got.text)) {
        firstTokenMs = Date.now() - sentAtMs;
        onToken();
      }
    }
  } catch (error) {
    return { ...got, ok: false, text: `${got.text}\n${String(error)}`, sentAtMs, firstTokenMs, outputTokens: 0 };
  }
  const { text } = got;
  const isWhole = text.endsWith('data: [DONE]\n\n') || text.startsWith('{');
  const isGood = /"finish_reason":"(stop|length)"/.test(text) && !/"error":\{/.test(text);
  const outputTokens = Number(
    text
      .match(/"completion_tokens":\d+/g)
      ?.at(-1)
      ?.split(':')[1] ?? 0,
  );
  return { ...got, ok: got.status === 200 && isWhole && isGood, sentAtMs, firstTokenMs, outputTokens };
}

function startLoad(ask: () => Promise<Answer>, workers: number): Load {
  const answers: Answer[] = [];
  let stopped = false;
  const work = async (): Promise<void> => {
    while (!stopped) {
      const answer = await ask();
      answers.push(answer);
      if (!answer.ok) await pause(50);
    }
  };
  const all = Promise.all(Array.from({ length: workers }, work));
  const good = (): number => answers.filter(({ ok }) => ok).length;
  return {
    answers,
    async more(count) {
      const wanted = good() + count;
      await until(`${count} more answers`, () => good() >= wanted || null);
    },
    async stop() {
      stopped = true;
      await all;
      return answers;
    },
  };
}

/** The part of an answer that a failed test should show. */
export function lostOf(answers: readonly Answer[]): string[] {
  return answers.filter(({ ok }) => !ok).map(({ status, text }) => `${status} ${text.slice(-300)}`);
}

/** Waits until there is a value that is neither null, undefined nor false. */
export async function until<T>(
  what: string,
  look: () => T | null | undefined | false | Promise<T | null | undefined | false>,
  timeoutMs = waitMs,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const found = await look();
    if (found !== null && found !== undefined && found !== false) return found;
    if (performance.now() > deadline) throw new Error(`It did not come to this: ${what}`);
    await pause(100);
  }
}

export interface Books {
  readonly requests: number;
  readonly completed: number;
  readonly outputTokens: number;
  readonly picoUsd: bigint;
}

/** Records of the requests to a model. */
export async function booksOf(gateway: Pick<TestGateway, 'db'>, model: string): Promise<Books> {
  const [row] = await gateway.db.sql<{ requests: number; completed: number; tokens: string; cost: string }[]>`
    select count(*)::int as requests, count(*) filter (where outcome = 'completed')::int as completed,
      coalesce(sum(output_tokens), 0)::text as tokens, coalesce(sum(cost), 0)::text as cost
    from usage_records where model = ${model}`;
  return {
    requests: row?.requests ?? 0,
    completed: row?.completed ?? 0,
    outputTokens: Number(row?.tokens ?? 0),
    picoUsd: BigInt(row?.cost ?? 0),
  };
}

interface Annotates {
  annotate(message: string): Promise<unknown>;
}

/** A figure to be quoted: with the test's results, and in the file that TEST_FIGURES names. */
export async function figure(test: Annotates, name: string, value: string | number): Promise<void> {
  const line = `${name}: ${typeof value === 'number' ? Math.round(value) : value}`;
  await test.annotate(line);
  const path = process.env['TEST_FIGURES'] ?? '';
  if (path !== '') appendFileSync(path, `${line}\n`);
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
