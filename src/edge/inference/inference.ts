import type { IncomingMessage, ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { Hono } from 'hono';
import { AppError } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';
import { createPromptOverheads } from '#core/admission/admission.ts';
import type { Fleet } from '#core/fleet/fleet.ts';
import type { OrganizationStop, SecretEnd } from '#core/keys/keys.ts';
import {
  type HttpContext,
  type HttpEnv,
  isAnthropicList,
  type InferenceCaller,
  knownQuery,
  requestId,
  type ShowLimits,
  unauthorized,
} from '#edge/http/http.ts';
import { createAnswerMemoryBudget, toInferenceError } from '#edge/inference/answer/answer.ts';
import {
  type Call,
  type CallOrigin,
  type CallTerms,
  commonTerms,
  createCall,
  createRunning,
  type Running,
  type RunningRequest,
} from '#edge/inference/call/call.ts';
import type { PathParts } from '#edge/inference/engine/engine.ts';
import { serveInference } from '#edge/inference/path/path.ts';
import { createLargeBodies, createReceiver, type ReceiveParts } from '#edge/inference/receive/receive.ts';
import { type Endpoint, endpoints } from '#edge/inference/request/request.ts';
import { anthropicModel, anthropicPage } from './anthropic-models.ts';
import { addResponseRoutes } from '#edge/inference/stored/stored.ts';
import { getModel, listModels, listPrices, modelIdOf } from './models.ts';

export { createEngineTextLog } from './engine-text.ts';
export { refuseModel } from './choose-model.ts';
export { hasEngineTools } from '#edge/inference/rules/rules.ts';
export { listPrices, modelRecords } from './models.ts';
export {
  type CallTrace,
  noTrace,
  type RequestObserver,
  type RequestSummary,
  type RunningRequest,
} from '#edge/inference/call/call.ts';

/** The OpenAI-compatible API under /v1. The inference routes write to Node's response themselves; see path.ts. */
export interface Inference {
  /** The same routes for the app: for URLs in absolute form, and for the 405 of other methods. */
  readonly requests: Hono<HttpEnv>;
  /** Serves a request whose method and path are exactly those of an inference route; returns false for all others. */
  answers(incoming: IncomingMessage, outgoing: ServerResponse): boolean;
  /** Lists of models and prices. */
  readonly lists: Hono<HttpEnv>;
  /**
   * Serves a request that did not arrive by one of these routes, in the way `requests` serves one at this path. The
   * answer goes to the exchange. Never throws.
   * @param stop ends the request early; its reason is the AppError that the client gets
   */
  serve(path: EndpointPath, exchange: Exchange, stop: AbortSignal, terms?: CallTerms): Promise<void>;
  /** Requests that are running. */
  readonly inFlight: number;
  /** The running requests for the models of an engine, oldest first. */
  runningOf(engineId: string): readonly RunningRequest[];
  /**
   * Cancels a running request for an operator. What the engine has counted is charged.
   * @returns false if no request with this id runs for a model of the engine
   */
  cancel(engineId: string, requestId: string): boolean;
  /** Ends the running requests of a revoked key. */
  revoked(keyId: string): void;
  /** Ends requests that came with a permanently revoked secret of a key that is still active. */
  secretEnded(end: SecretEnd): void;
  /** Ends the running requests of a suspended or closed organization. */
  organizationStopped(stop: OrganizationStop): void;
  /** Waits at most `timeoutMs` until nothing is running, then ends all running requests and waits for their records. */
  drain(timeoutMs: number): Promise<void>;
  /** Ends the thread that reads large bodies. Call when no request is running. */
  close(): void;
}

export type EndpointPath = (typeof endpoints)[number]['path'];

/** Node's request and the response to it. */
export type Exchange = Pick<CallOrigin, 'incoming' | 'outgoing'>;

export interface InferenceParts extends Omit<
  PathParts,
  'running' | 'receiver' | 'answerMemory' | 'overheads' | 'countFaults'
> {
  readonly fleet: Fleet;
  readonly showLimits: ShowLimits;
  readonly limits: PathParts['limits'] & ReceiveParts['limits'] & { readonly bodiesBytesMax: number };
}

const endpointsByPath: ReadonlyMap<string, Endpoint> = new Map(endpoints.map((one) => [one.path, one]));

function endpointOf({ method, url = '' }: IncomingMessage): Endpoint | undefined {
  const queryAt = url.indexOf('?');
  return method === 'POST' ? endpointsByPath.get(queryAt === -1 ? url : url.slice(0, queryAt)) : undefined;
}

const alreadySent = (): Response => RESPONSE_ALREADY_SENT;
const stopping = 'The gateway is stopping. Send the request again.';
const canceled = 'An operator canceled this request.';
const drainPollMs = 50;
const drainEndMs = 5_000;

export function createInference(parts: InferenceParts): Inference {
  const running = createRunning();
  const largeBodies = createLargeBodies(parts.log);
  const receiver = createReceiver({ limits: parts.limits, shares: parts.shares, catalog: parts.catalog, largeBodies });
  const answerMemory = createAnswerMemoryBudget({ bytesMax: parts.limits.bodiesBytesMax });
  const overheads = createPromptOverheads();
  const pathParts: PathParts = { ...parts, running, receiver, answerMemory, overheads, countFaults: new Set() };
  const requests = new Hono<HttpEnv>();

  const begin = (endpoint: Endpoint, { incoming, outgoing }: Exchange, terms = commonTerms): Call => {
    const startedMs = parts.clock.monotonicMs();
    const id = uuidv7(parts.clock.now());
    const trace = parts.observer.trace(endpoint, incoming.headers, id);
    return createCall({ requestId: id, endpoint, incoming, outgoing, trace, startedMs, terms });
  };
  for (const endpoint of endpoints) {
    requests.post(endpoint.path, ({ env }) => serveInference(pathParts, begin(endpoint, env)).then(alreadySent));
  }

  return {
    requests,
    answers(incoming, outgoing) {
      const endpoint = endpointOf(incoming);
      if (endpoint !== undefined) void serveInference(pathParts, begin(endpoint, { incoming, outgoing }));
      return endpoint !== undefined;
    },
    lists: createLists(parts),
    async serve(path, exchange, stop, terms) {
      const endpoint = endpointsByPath.get(path);
      if (endpoint === undefined) throw new Error(`no endpoint ${path}`);
      const call = begin(endpoint, exchange, terms);
      const end = (): void => call.stop.stop({ kind: 'ended', error: toInferenceError(stop.reason) });
      if (stop.aborted) end();
      stop.addEventListener('abort', end, { once: true });
      await serveInference(pathParts, call);
      stop.removeEventListener('abort', end);
    },
    get inFlight() {
      return running.size;
    },
    ...createEndings(running),
    async drain(timeoutMs) {
      await idle(timeoutMs);
      running.stopAll({ kind: 'ended', error: new AppError('upstream_error', { status: 503, message: stopping }) });
      await idle(drainEndMs);
    },
    close: () => largeBodies.close(),
  };

  async function idle(timeoutMs: number): Promise<void> {
    const until = parts.clock.monotonicMs() + timeoutMs;
    while (running.size > 0 && parts.clock.monotonicMs() < until) {
      await new Promise((resolve) => setTimeout(resolve, drainPollMs));
    }
  }
}

type Endings = Pick<Inference, 'runningOf' | 'cancel' | 'revoked' | 'secretEnded' | 'organizationStopped'>;

/** Ends running requests by key, organization or id. */
function createEndings(running: Running): Endings {
  return {
    runningOf: (engineId) => running.ofEngine(engineId),
    cancel(engineId, id) {
      const options = { status: 503, lasting: true, message: canceled, reason: 'operator' };
      const error = new AppError('upstream_error', options);
      return running.stopRequest(engineId, id, { kind: 'ended', error });
    },
    revoked(keyId) {
      const error = unauthorized('This API key was revoked.', 'key_revoked');
      running.stopKey(keyId, { kind: 'ended', error });
    },
    secretEnded(end) {
      const error = unauthorized('This secret of the API key is no longer valid.', 'former_secret_expired');
      running.stopSecret(end, { kind: 'ended', error });
    },
    organizationStopped({ organizationId, status }) {
      const error =
        status === 'suspended'
          ? new AppError('organization_suspended')
          : unauthorized('This API key was revoked.', 'organization_closed');
      running.stopOrganization(organizationId, { kind: 'ended', error });
    },
  };
}

const speech = 'not available yet; it is coming soon.';
const images = 'Image generation is not supported. Models with the task type "vision" can read images.';

/** OpenAI routes that no model here serves. */
const unserved: readonly { readonly path: string; readonly message: string }[] = [
  { path: '/v1/audio/transcriptions', message: `Audio transcription is ${speech}` },
  { path: '/v1/audio/translations', message: `Audio translation is ${speech}` },
  { path: '/v1/audio/speech', message: `Speech is ${speech}` },
  { path: '/v1/images/generations', message: images },
  { path: '/v1/images/edits', message: images },
  { path: '/v1/images/variations', message: images },
  {
    path: '/v1/moderations',
    message: 'Moderation models are not supported. Use a chat model instead.',
  },
];

function createLists(parts: InferenceParts): Hono<HttpEnv> {
  const app = new Hono<HttpEnv>();
  const known = async (context: HttpContext): Promise<InferenceCaller> => {
    const caller = await parts.authenticator.authenticate(context.env.incoming);
    context.set('caller', caller);
    for (const [name, value] of Object.entries(await parts.showLimits(caller))) context.header(name, value);
    return caller;
  };
  app.get('/v1/models', requestId, async (context) => {
    const { key } = await known(context);
    const { data, ...list } = listModels(parts, context.req.query('task_type'), key);
    return context.json(isAnthropicList(context) ? anthropicPage(data, context.req.query()) : { ...list, data });
  });
  app.get('/v1/models/:id{.+}', requestId, async (context) => {
    const { key } = await known(context);
    const record = getModel(parts, modelIdOf(context), key);
    return context.json(isAnthropicList(context) ? anthropicModel(record) : record);
  });
  app.get('/v1/pricing', requestId, knownQuery([]), (context) => context.json(listPrices(parts)));
  addResponseRoutes(app, { ...parts, known });
  for (const { path, message } of unserved) {
    app.post(path, requestId, async (context) => {
      await known(context);
      throw new AppError('not_implemented', { message, lasting: true });
    });
  }
  return app;
}
