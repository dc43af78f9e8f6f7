import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders, Server } from 'node:http';
import { type Options, VERSION } from './args.ts';
import { answerChat } from './chat.ts';
import { answerCompletion } from './completions.ts';
import { answerEmbedding } from './embeddings.ts';
import {
  DETAIL_METHOD,
  DETAIL_NOT_FOUND,
  UNAUTHORIZED,
  WRONG_MEDIA_TYPE,
  injected,
  invalidBody,
  refusal,
  type Refused,
} from './errors.ts';
import { createHttpServer, readBody, type Exchange } from './http.ts';
import { openJournal } from './journal.ts';
import { mergeKnobs } from './knobs.ts';
import { answerCountTokens, answerMessages } from './messages.ts';
import { createMetrics } from './metrics.ts';
import * as operations from './operations.ts';
import type { Body } from './params.ts';
import { createPrefixCache } from './prefix-cache.ts';
import { findJsonFault } from './python.ts';
import { answerRerank, answerScore } from './rerank.ts';
import { answerRender, answerResponses } from './responses.ts';
import type { Engine } from './run.ts';
import { Scheduler } from './scheduler.ts';
import { hashText } from './tokenizer.ts';

const CACHE_BLOCKS_MAX = 65_536;

type Plain = (engine: Engine, exchange: Exchange) => void;
type WithBody = (engine: Engine, exchange: Exchange, body: Body) => void;

/** The answers of a path: to a GET, a POST without a body, a POST with a JSON body. */
interface Route {
  get?: Plain;
  post?: Plain;
  postBody?: WithBody;
  /** An inference route: the knobs that break an answer from outside apply. */
  inference?: true;
}

function routesOf(options: Options): Map<string, Route> {
  const routes = new Map<string, Route>([
    ['/health', { get: operations.answerHealth }],
    ['/ping', { get: operations.answerHealth, post: operations.answerHealth }],
    ['/version', { get: operations.answerVersion }],
    ['/load', { get: operations.answerLoad }],
    ['/metrics', { get: operations.answerMetrics }],
    ['/v1/models', { get: operations.answerModels }],
    ['/tokenize', { postBody: operations.answerTokenize }],
    ['/detokenize', { postBody: operations.answerDetokenize }],
  ]);
  if (options.scoring) {
    routes.set('/v1/rerank', { postBody: answerRerank, inference: true });
    routes.set('/v1/score', { postBody: answerScore, inference: true });
  } else if (options.embedding) routes.set('/v1/embeddings', { postBody: answerEmbedding, inference: true });
  else {
    routes.set('/v1/chat/completions', { postBody: answerChat, inference: true });
    routes.set('/v1/responses', { postBody: answerResponses, inference: true });
    routes.set('/v1/responses/render', { postBody: answerRender });
    routes.set('/v1/messages', { postBody: answerMessages, inference: true });
    routes.set('/v1/messages/count_tokens', { postBody: answerCountTokens });
    routes.set('/v1/completions', { postBody: answerCompletion, inference: true });
  }
  if (!options.devMode) return routes;
  if (options.abortFault !== 'missing') routes.set('/abort_requests', { postBody: operations.answerAbort });
  routes.set('/server_info', { get: operations.answerServerInfo, post: operations.answerServerInfo });
  routes.set('/is_sleeping', { get: operations.answerSleeping });
  routes.set('/sleep', { post: operations.answerSleep });
  routes.set('/wake_up', { post: operations.answerWakeUp });
  routes.set('/pause', { post: operations.answerPause });
  routes.set('/resume', { post: operations.answerResume });
  routes.set('/is_paused', { get: operations.answerPaused });
  routes.set('/collective_rpc', { postBody: operations.answerCollectiveRpc });
  routes.set('/reset_prefix_cache', { post: operations.answerResetPrefixCache });
  return routes;
}

/** Path prefixes that vLLM guards; no other path needs a key. */
function isGuarded(path: string): boolean {
  return /^\/(v1|v2|inference|cohere)/.test(path);
}

function createGuard(keys: readonly string[]): (headers: IncomingHttpHeaders) => boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  const known = keys.map(digest);
  return ({ authorization }) => {
    if (known.length === 0) return true;
    const [scheme, ...rest] = (authorization ?? '').split(' ');
    if (scheme?.toLowerCase() !== 'bearer') return false;
    const given = digest(rest.join(' '));
    return known.some((key) => timingSafeEqual(key, given));
  };
}

/** Reads a JSON object, or refuses it as FastAPI does. */
function parseBody(text: string, contentType: string | undefined): { body: Body } | Refused {
  if (!/^application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i.test(contentType ?? '')) return WRONG_MEDIA_TYPE;
  if (text === '') return invalidBody([{ type: 'missing', loc: ['body'], msg: 'Field required', input: null }]);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    const { at, reason } = findJsonFault(text);
    return invalidBody([
      { type: 'json_invalid', loc: ['body', at], msg: 'JSON decode error', input: {}, ctx: { error: reason } },
    ]);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { body: value as Body };
  const msg = 'Input should be a valid dictionary or object to extract fields from';
  return invalidBody([{ type: 'model_attributes_type', loc: ['body'], msg, input: value }]);
}

/** Does what the knobs say instead of an answer; true when that was all. */
function sabotage(engine: Engine, exchange: Exchange, body: Body): boolean {
  const knobs = mergeKnobs(engine.options.knobs, body.standin);
  if (knobs.garbage_http === true) {
    exchange.destroy('\x00\x7f this is not HTTP \r\n\r\n');
    return true;
  }
  if (knobs.freeze === true) engine.scheduler.freeze();
  if (knobs.status === undefined) return false;
  const refused = injected(knobs.status, knobs.status_message, engine.options.servedNames[0] ?? '');
  exchange.send(
    refused.status,
    'application/json',
    refused.body,
    knobs.status === 429 || knobs.status === 503 ? ['retry-after', '1'] : [],
  );
  return true;
}

const QUEUE_FULL = refusal(
  503,
  'Service Unavailable',
  'The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.',
);

/** True if the choices of a request are more than the queue still takes. */
function isQueueFull({ options: { maxNumQueuedReqs }, scheduler }: Engine, { n }: Body): boolean {
  const choices = typeof n === 'number' ? n : 1;
  return maxNumQueuedReqs !== null && scheduler.running + scheduler.waiting + choices > maxNumQueuedReqs;
}

function answerBody(engine: Engine, exchange: Exchange, route: Route): void {
  readBody(exchange.req, (text) => {
    const parsed = parseBody(text, exchange.req.headers['content-type']);
    if ('status' in parsed) {
      exchange.json(parsed.status, parsed.body);
      return;
    }
    if (route.inference === true) {
      if (engine.refusing) {
        const refused = refusal(500, 'InternalServerError', 'cannot schedule new futures after shutdown');
        exchange.json(refused.status, refused.body);
        return;
      }
      if (sabotage(engine, exchange, parsed.body)) return;
      if (isQueueFull(engine, parsed.body)) {
        exchange.json(QUEUE_FULL.status, QUEUE_FULL.body);
        return;
      }
    }
    route.postBody?.(engine, exchange, parsed.body);
  });
}

/** Hands a request to its route's verb. */
function dispatch(engine: Engine, exchange: Exchange, route: Route): void {
  const { method } = exchange.req;
  if (method === 'GET' && route.get !== undefined) route.get(engine, exchange);
  else if (method === 'POST' && route.post !== undefined) route.post(engine, exchange);
  else if (method === 'POST' && route.postBody !== undefined) answerBody(engine, exchange, route);
  else {
    const verbs = route.get === undefined ? [] : ['GET'];
    if (route.post !== undefined || route.postBody !== undefined) verbs.push('POST');
    exchange.send(405, 'application/json', DETAIL_METHOD, ['allow', verbs.join(', ')]);
  }
}

export interface App {
  engine: Engine;
  server: Server;
}

/** Builds the engine and its HTTP front; nothing listens yet. `log` takes whole lines. */
export function createApp(options: Options, log: (line: string) => void): App {
  const metrics = createMetrics();
  const now = (): number => performance.now();
  const engine: Engine = {
    options,
    metrics,
    scheduler: new Scheduler({
      sequencesMax: options.maxNumSeqs,
      readsInPieces: options.chunkedPrefill,
      metrics,
      now,
      onToken: options.journal === null ? null : openJournal(options.journal),
    }),
    cache: createPrefixCache({ blockSize: options.blockSize, blocksMax: CACHE_BLOCKS_MAX }),
    fingerprint: `vllm-${VERSION}-${hashText(options.servedNames.join(' ')).toString(16).padStart(8, '0')}`,
    runs: new Set(),
    now,
    asleep: new Set(),
    paused: false,
    refusing: false,
  };
  const routes = routesOf(options);
  const allowed = createGuard(options.apiKeys);
  const server = createHttpServer(options, (exchange) => {
    const { req, path } = exchange;
    if (options.accessLog) log(`INFO:     "${req.method ?? ''} ${path} HTTP/${req.httpVersion}"`);
    if (isGuarded(path) && req.method !== 'OPTIONS' && !allowed(req.headers)) {
      exchange.answer.vary = false;
      exchange.json(401, UNAUTHORIZED);
      return;
    }
    const route = routes.get(path);
    if (route === undefined) exchange.json(404, DETAIL_NOT_FOUND);
    else dispatch(engine, exchange, route);
  });
  return { engine, server };
}
