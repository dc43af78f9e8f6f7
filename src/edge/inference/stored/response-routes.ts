import type { Hono } from 'hono';
import { AppError } from '#base/errors.ts';
import type { ReadMemory, StoredResponses } from '#core/responses/responses.ts';
import { type BodyShares, type HttpContext, type HttpEnv, type InferenceCaller, requestId } from '#edge/http/http.ts';
import { isObject, type Members } from '#edge/inference/json-member.ts';
import { endpoints } from '#edge/inference/request/request.ts';
import { type ConversationParts, parseResponseId, readMemory, scopeOf } from './conversation.ts';

export interface ResponseRoutesParts {
  readonly storedResponses: StoredResponses;
  readonly shares: BodyShares;
  readonly limits: ConversationParts['limits'];
  /** Returns the caller, and shows the limits of the key. */
  readonly known: (context: HttpContext) => Promise<InferenceCaller>;
}

const owner = endpoints.find(({ storeKey }) => storeKey !== null);
const limitMax = 100;
const limitDefault = 20;

/** Adds the routes of stored responses, in OpenAI's form, below the endpoint that creates them. */
export function addResponseRoutes(app: Hono<HttpEnv>, parts: ResponseRoutesParts): void {
  const { storedResponses, shares, limits, known } = parts;
  if (owner === undefined) return;
  const path = `${owner.path}/:id`;
  const idOf = (context: HttpContext): string => {
    const id = parseResponseId(context.req.param('id') ?? '');
    if (id === null) throw notFound();
    return id;
  };
  /** Memory of the caller, until the answer is sent. */
  const memoryOf = ({ env }: HttpContext, { key }: InferenceCaller): ReadMemory => {
    const hold = shares.hold(key.id);
    env.outgoing.once('close', () => hold.release());
    return readMemory(hold, limits);
  };

  app.get(path, requestId, async (context) => {
    const caller = await known(context);
    if ((context.req.query('stream') ?? 'false') !== 'false') {
      const message = 'A stored response cannot be streamed. Read it without "stream".';
      throw new AppError('unsupported_parameter', { message, param: 'stream' });
    }
    const response = await storedResponses.read(scopeOf(caller), idOf(context), memoryOf(context, caller));
    if (response === null) throw notFound();
    return context.body(response, 200, { 'content-type': 'application/json' });
  });

  app.delete(path, requestId, async (context) => {
    const caller = await known(context);
    const author = { actor: caller.actor, requestId: context.get('requestId') };
    const isDeleted = await storedResponses.remove(scopeOf(caller), idOf(context), author);
    if (!isDeleted) throw notFound();
    return context.json({ id: context.req.param('id'), object: 'response', deleted: true });
  });

  app.get(`${path}/input_items`, requestId, async (context) => {
    const caller = await known(context);
    const id = idOf(context);
    const input = await storedResponses.readInput(scopeOf(caller), id, memoryOf(context, caller));
    if (input === null) throw notFound();
    return context.json(pageOf(itemsOf(JSON.parse(input) as unknown[], id), context));
  });

  app.post(`${path}/cancel`, requestId, async (context) => {
    const caller = await known(context);
    const response = await storedResponses.read(scopeOf(caller), idOf(context), memoryOf(context, caller));
    if (response === null) throw notFound();
    const message = 'Only a response with "background": true can be canceled, and "background" is not supported.';
    throw new AppError('invalid_request_error', { message });
  });
}

function notFound(): AppError {
  const message = 'There is no such response: it is unknown, deleted or expired, or had "store": false.';
  return new AppError('not_found', { message, param: 'id' });
}

const prefixes: Readonly<Record<string, string>> = {
  message: 'msg',
  reasoning: 'rs',
  function_call: 'fc',
  function_call_output: 'fco',
};

/** Returns input items as OpenAI lists them, each with an id of its own: pages begin after an id. */
function itemsOf(items: readonly unknown[], responseId: string): readonly Members[] {
  const seen = new Set<unknown>();
  return items.map((item, at) => {
    const shown = toItem(item);
    const { id } = shown;
    const own = typeof id === 'string' && !seen.has(id) ? id : newId(shown, responseId, at);
    seen.add(own);
    return { ...shown, id: own };
  });
}

function newId({ type }: Members, responseId: string, at: number): string {
  return `${prefixes[String(type)] ?? 'item'}_${responseId.replaceAll('-', '')}${at}`;
}

/** Adds the type of a message, and its parts. */
function toItem(item: unknown): Members {
  const given = isObject(item) ? item : {};
  const { type = 'message', content } = given;
  const kind = typeof type === 'string' ? type : 'message';
  const part = { type: given['role'] === 'assistant' ? 'output_text' : 'input_text', text: content };
  return {
    id: null,
    type: kind,
    ...(kind === 'message' && { status: 'completed' }),
    ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null)),
    ...(typeof content === 'string' && { content: [part] }),
  };
}

/** @param items the oldest first */
function pageOf(items: readonly Members[], context: HttpContext) {
  const { after, before, limit, order = 'desc' } = context.req.query();
  const size = sizeOf(limit);
  if (order !== 'asc' && order !== 'desc') throw invalid('order', 'must be "asc" or "desc"');
  const ordered = order === 'asc' ? items : items.toReversed();
  const placeOf = (param: string, id: string): number => {
    const place = ordered.findIndex((item) => item['id'] === id);
    if (place === -1) throw invalid(param, 'must be the id of an input item of this response');
    return place;
  };
  const from = after === undefined ? 0 : placeOf('after', after) + 1;
  const to = before === undefined ? ordered.length : placeOf('before', before);
  const data = ordered.slice(from, Math.min(to, from + size));
  return {
    object: 'list',
    data,
    first_id: data[0]?.['id'] ?? null,
    last_id: data.at(-1)?.['id'] ?? null,
    has_more: from + size < to,
  };
}

function sizeOf(limit: string | undefined): number {
  if (limit === undefined) return limitDefault;
  const size = Number(limit);
  if (/^\d+$/.test(limit) && size >= 1 && size <= limitMax) return size;
  throw invalid('limit', `must be a whole number from 1 to ${limitMax}`);
}

const invalid = (param: string, message: string): AppError =>
  new AppError('invalid_value', { message: `"${param}" ${message}.`, param });
