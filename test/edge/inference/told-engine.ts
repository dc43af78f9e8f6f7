import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';

/**
 * An engine that answers with what the request says in `answer`: an object, the text of a stream, or a list of two
 * objects, the first of them for the part of many texts that has the text "first".
 */
export interface ToldEngine {
  readonly url: string;
  /** Ends the answer to the request that had this name in `hold`, which is left open until then. */
  end(hold: string, rest: string): void;
  close(): void;
}

interface ToldObject {
  readonly data?: unknown;
}

interface Told {
  readonly answer?: string | ToldObject | readonly [ToldObject, ToldObject];
  readonly input?: unknown;
  readonly stream?: boolean;
  readonly hold?: string;
}

/** An answer with `data` has a vector for each input. */
export async function startToldEngine(): Promise<ToldEngine> {
  const open = new Map<string, ServerResponse>();
  const server = createServer((incoming, response) => {
    void readText(incoming).then((body) => {
      const { answer, input, stream, hold }: Told = body === '' ? {} : JSON.parse(body);
      if (answer === undefined) return response.writeHead(404).end('{}');
      response.writeHead(200, { 'content-type': stream === true ? 'text/event-stream' : 'application/json' });
      response.write(textOf(answer, input));
      if (hold === undefined) return response.end();
      return open.set(hold, response);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    end: (hold, rest) => void open.get(hold)?.end(rest),
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

function textOf(answer: Exclude<Told['answer'], undefined>, input: unknown): string {
  if (typeof answer === 'string') return answer;
  const texts: readonly unknown[] = Array.isArray(input) ? input : [];
  const one = 'length' in answer ? answer[texts.includes('first') ? 0 : 1] : answer;
  const hasVectors = texts.length > 0 && one.data !== undefined;
  return JSON.stringify(hasVectors ? { ...one, data: vectors(texts.length) } : one);
}

export const vectors = (count: number): object[] =>
  Array.from({ length: count }, (_, index) => ({ object: 'embedding', index, embedding: [0.5] }));

export const frame = (body: object): string => `data: ${JSON.stringify(body)}\n\n`;

/** A chunk of chat with text. */
export const chunk = (content: string, more: object = {}, index = 0): string =>
  frame({ id: 'x', model: 'odd', choices: [{ index, delta: { content }, finish_reason: null }], ...more });

/** The chunk that ends a choice of chat. */
export const finish = (index = 0, more: object = {}): string =>
  frame({ id: 'x', model: 'odd', choices: [{ index, delta: {}, finish_reason: 'stop' }], ...more });

export const counts = (prompt: number, completion: number, more: object = {}) => ({
  usage: { prompt_tokens: prompt, completion_tokens: completion, ...more },
});

/** The chunk with the last count. */
export const last = (prompt: number, completion: number, more: object = {}): string =>
  frame({ id: 'x', model: 'odd', choices: [], ...counts(prompt, completion, more) });

export const done = 'data: [DONE]\n\n';

/** A complete chat of one word. */
export const chatAnswer = (more: object): object => ({
  id: 'x',
  model: 'odd',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
  ...more,
});

/** 44 bytes, which are 11 tokens by their length. */
const words = 'The quick brown fox jumps over the lazy dog.';
const madeTokens = 11;

/** A request that `startToldEngine` answers, with model `odd`, `embed` or `sorter`. */
interface Route {
  readonly body: { readonly model: string; readonly [field: string]: unknown };
  /** A complete JSON answer with `usage`, or without where that is undefined. */
  readonly answer: (usage: unknown) => object;
  readonly outputTokens: number;
}

const chat = (usage: unknown): object => ({
  id: 'x',
  model: 'odd',
  choices: [{ index: 0, message: { role: 'assistant', content: words }, finish_reason: 'stop' }],
  usage,
});
const list = (usage: unknown): object => ({ object: 'list', model: 'embed', data: vectors(1), usage });

export const routes = {
  '/v1/chat/completions': {
    body: { model: 'odd', messages: [{ role: 'user', content: 'Hello' }] },
    answer: chat,
    outputTokens: madeTokens,
  },
  '/v1/completions': {
    body: { model: 'odd', prompt: 'Hello', max_tokens: 64 },
    answer: (usage) => ({ id: 'x', model: 'odd', choices: [{ index: 0, text: words, finish_reason: 'stop' }], usage }),
    outputTokens: madeTokens,
  },
  '/v1/responses': {
    body: { model: 'odd', input: 'Hello' },
    answer: (usage) => ({
      object: 'response',
      status: 'completed',
      model: 'odd',
      output: [{ type: 'message', id: 'm', role: 'assistant', content: [{ type: 'output_text', text: words }] }],
      usage,
    }),
    outputTokens: madeTokens,
  },
  '/v1/messages': {
    body: { model: 'odd', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 64 },
    answer: (usage) => ({
      type: 'message',
      role: 'assistant',
      model: 'odd',
      content: [{ type: 'text', text: words }],
      stop_reason: 'end_turn',
      usage,
    }),
    outputTokens: madeTokens,
  },
  '/v1/embeddings': { body: { model: 'embed', input: 'Hello' }, answer: list, outputTokens: 0 },
  '/v1/rerank': {
    body: { model: 'sorter', query: 'Hello', documents: ['a', 'b'] },
    answer: (usage) => ({ id: 'x', model: 'sorter', results: [{ index: 0, relevance_score: 1 }], usage }),
    outputTokens: 0,
  },
} satisfies Readonly<Record<string, Route>>;
