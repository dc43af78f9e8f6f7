import { answerWhole } from './embeddings.ts';
import { badRequest, invalidBody, refusal, tooLong, type Refused } from './errors.ts';
import { randomHex, type Exchange } from './http.ts';
import { observe } from './metrics.ts';
import { checkModel, scanText, type Body } from './params.ts';
import type { Engine } from './run.ts';

/** Scores of pairs, as vLLM's /v1/rerank and /v1/score give them (entrypoints/pooling/scoring/protocol.py, 0.29). */

interface Pair {
  document: string;
  tokens: number;
  score: number;
}

/** [CLS], and [SEP] after each part. */
const SPECIAL_TOKENS = 3;

function textsOf(value: unknown): string[] | null {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.every((item) => typeof item === 'string') ? list : null;
}

/** The share of the document's words that the query has, too: made only of the two texts. */
function scoreOf(query: string, document: string): number {
  const words = (text: string): string[] => text.toLowerCase().match(/\p{L}+/gu) ?? [];
  const asked = new Set(words(query));
  const found = words(document);
  return found.length === 0 ? 0 : found.filter((word) => asked.has(word)).length / found.length;
}

function missing(field: string, input: unknown): Refused {
  return invalidBody([{ type: 'missing', loc: ['body', field], msg: 'Field required', input }], `body.${field}`);
}

/** One query with every document, or each with its own. */
function pairsOf(engine: Engine, body: Body, names: readonly [string, string]): Pair[] | Refused {
  const unknown = checkModel(body, engine.options);
  if (unknown !== null) return refusal(404, 'NotFoundError', `The model \`${unknown}\` does not exist.`, 'model');
  const fields = body as Record<string, unknown>;
  for (const name of names) if (fields[name] === undefined) return missing(name, body);
  const queries = textsOf(fields[names[0]]);
  const documents = textsOf(fields[names[1]]);
  if (queries === null || documents === null) return badRequest('Only texts can be compared here');
  if (documents.length === 0) return badRequest('At least one text_pair element must be given');
  if (queries.length !== 1 && queries.length !== documents.length) {
    return badRequest('Input lengths must be either 1:1, 1:N or N:N');
  }
  const pairs = documents.map((document, index): Pair => {
    const query = queries[queries.length === 1 ? 0 : index] ?? '';
    const { blockSize } = engine.options;
    const tokens = scanText(query, blockSize).count + scanText(document, blockSize).count + SPECIAL_TOKENS;
    return { document, tokens, score: scoreOf(query, document) };
  });
  const { maxModelLen } = engine.options;
  return pairs.some(({ tokens }) => tokens > maxModelLen) ? tooLong(maxModelLen, 0) : pairs;
}

function countPairs({ metrics }: Engine, pairs: readonly Pair[]): number {
  const tokens = pairs.reduce((sum, pair) => sum + pair.tokens, 0);
  metrics.promptTokens += tokens;
  metrics.prefixQueries += tokens;
  metrics.finished.stop += pairs.length;
  for (const pair of pairs) observe(metrics.requestPromptTokens, pair.tokens);
  return tokens;
}

/** Answers POST /v1/rerank. */
export function answerRerank(engine: Engine, exchange: Exchange, body: Body): void {
  const pairs = pairsOf(engine, body, ['query', 'documents']);
  if ('status' in pairs) {
    exchange.json(pairs.status, pairs.body);
    return;
  }
  const { top_n: top } = body as { top_n?: unknown };
  answerWhole(engine, exchange, body, () => {
    const tokens = countPairs(engine, pairs);
    const results = pairs
      .map(({ document, score }, index) => ({
        index,
        document: { text: document, multi_modal: null },
        relevance_score: score,
      }))
      .toSorted((a, b) => b.relevance_score - a.relevance_score)
      .slice(0, typeof top === 'number' && top > 0 ? top : pairs.length);
    const id = `rerank-${exchange.requestId ?? randomHex()}`;
    const usage = { prompt_tokens: tokens, total_tokens: tokens };
    exchange.json(200, JSON.stringify({ id, model: engine.options.servedNames[0], usage, results }));
  });
}

/** Answers POST /v1/score, of whose four pairs of names it knows the two that are used most. */
export function answerScore(engine: Engine, exchange: Exchange, body: Body): void {
  const pairs = pairsOf(engine, body, 'text_1' in body ? ['text_1', 'text_2'] : ['queries', 'documents']);
  if ('status' in pairs) {
    exchange.json(pairs.status, pairs.body);
    return;
  }
  answerWhole(engine, exchange, body, () => {
    const tokens = countPairs(engine, pairs);
    const id = `score-${exchange.requestId ?? randomHex()}`;
    const created = Math.floor(Date.now() / 1000);
    const data = pairs.map(({ score }, index) => ({ index, object: 'score', score }));
    const usage = { prompt_tokens: tokens, total_tokens: tokens, completion_tokens: 0, prompt_tokens_details: null };
    exchange.json(
      200,
      JSON.stringify({ id, object: 'list', created, model: engine.options.servedNames[0], data, usage }),
    );
  });
}
