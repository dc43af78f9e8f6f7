import { encodeMessages } from './conversation.ts';
import { badRequest, invalidBody } from './errors.ts';
import { randomHex, type Exchange } from './http.ts';
import { renderMetrics } from './metrics.ts';
import type { Body } from './params.ts';
import type { Engine } from './run.ts';
import { decode, encode } from './tokenizer.ts';

/** The routes beside inference: probes, counters, tokens, and what vLLM offers in development mode. */

export function answerModels(engine: Engine, exchange: Exchange): void {
  const created = Math.floor(Date.now() / 1000);
  const { servedNames, adapters, model, maxModelLen } = engine.options;
  const [base = null] = servedNames;
  const cards = [
    ...servedNames.map((id) => ({ id, root: model, parent: null, length: maxModelLen })),
    ...[...adapters].map(([id, root]) => ({ id, root, parent: base, length: null })),
  ];
  const data = cards.map(({ id, root, parent, length }) => ({
    id,
    object: 'model',
    created,
    owned_by: 'vllm',
    root,
    parent,
    max_model_len: length,
    permission: [
      {
        id: `modelperm-${randomHex()}`,
        object: 'model_permission',
        created,
        allow_create_engine: false,
        allow_sampling: true,
        allow_logprobs: true,
        allow_search_indices: false,
        allow_view: true,
        allow_fine_tuning: false,
        organization: '*',
        group: null,
        is_blocking: false,
      },
    ],
  }));
  exchange.json(200, JSON.stringify({ object: 'list', data }));
}

export function answerHealth(_engine: Engine, exchange: Exchange): void {
  exchange.send(200, null, '');
}

export function answerVersion(engine: Engine, exchange: Exchange): void {
  exchange.json(200, JSON.stringify({ version: engine.options.version }));
}

export function answerLoad(engine: Engine, exchange: Exchange): void {
  const load = engine.options.serverLoadTracking ? engine.runs.size : 0;
  exchange.json(200, `{"server_load":${load}}`);
}

export function answerMetrics(engine: Engine, exchange: Exchange): void {
  const text = renderMetrics(engine.metrics, {
    running: engine.scheduler.running,
    waiting: engine.scheduler.waiting,
    cacheTokens: engine.scheduler.cacheTokens(),
    sleeping: engine.asleep.size > 0,
    modelName: engine.options.servedNames[0] ?? '',
    blockSize: engine.options.blockSize,
  });
  exchange.send(200, 'text/plain; version=1.0.0; charset=utf-8', text);
}

export function answerTokenize(engine: Engine, exchange: Exchange, body: Body): void {
  let tokens: number[];
  if (typeof body.prompt === 'string') tokens = encode(body.prompt);
  else if (Array.isArray(body.messages)) tokens = encodeMessages(body.messages, engine.options);
  else {
    const refused = invalidBody([{ type: 'missing', loc: ['body', 'prompt'], msg: 'Field required', input: body }]);
    exchange.json(refused.status, refused.body);
    return;
  }
  const strings = body.return_token_strs === true ? tokens.map((id) => decode([id])) : null;
  exchange.json(
    200,
    JSON.stringify({ count: tokens.length, max_model_len: engine.options.maxModelLen, tokens, token_strs: strings }),
  );
}

export function answerDetokenize(_engine: Engine, exchange: Exchange, body: Body): void {
  const { tokens } = body;
  if (!Array.isArray(tokens) || !tokens.every((id) => Number.isInteger(id))) {
    const refused = invalidBody([{ type: 'missing', loc: ['body', 'tokens'], msg: 'Field required', input: body }]);
    exchange.json(refused.status, refused.body);
    return;
  }
  exchange.json(200, JSON.stringify({ prompt: decode(tokens) }));
}

/** Ends requests by their ids; the answer counts the ids given, whether or not one was found. */
export function answerAbort(engine: Engine, exchange: Exchange, body: Body): void {
  const ids = body.request_ids;
  if (!Array.isArray(ids) || !ids.every((id) => typeof id === 'string')) {
    const refused = badRequest('request_ids must be a list of strings');
    exchange.json(refused.status, refused.body);
    return;
  }
  const { abortFault } = engine.options;
  if (abortFault !== 'deaf') engine.scheduler.abort(ids);
  if (abortFault === 'miscount') engine.metrics.generationTokens += 1;
  exchange.json(200, `{"status":"aborted","aborted":${ids.length}}`);
}

export function answerSleeping(engine: Engine, exchange: Exchange): void {
  exchange.json(200, `{"is_sleeping":${engine.asleep.size > 0}}`);
}

/** Sleeping ends what runs, unless told to keep it, and makes new requests wait. */
export function answerSleep(engine: Engine, exchange: Exchange): void {
  const mode = new URLSearchParams(exchange.query).get('mode') ?? 'abort';
  engine.asleep = new Set(['weights', 'kv_cache']);
  engine.scheduler.pause(true);
  if (mode === 'abort') engine.scheduler.abortAll();
  const level = Number(new URLSearchParams(exchange.query).get('level') ?? '1');
  exchange.json(200, JSON.stringify({ status: 'sleeping', level }));
}

/** Without tags all of it wakes; requests run on only when nothing sleeps any more. A tag that is not asleep does nothing. */
export function answerWakeUp(engine: Engine, exchange: Exchange): void {
  const given = new URLSearchParams(exchange.query).getAll('tags');
  const tags = given.length === 0 ? null : given;
  if ((tags ?? []).every((tag) => engine.asleep.has(tag))) {
    for (const tag of tags ?? [...engine.asleep]) engine.asleep.delete(tag);
  }
  if (engine.asleep.size === 0) engine.scheduler.pause(engine.paused);
  exchange.json(200, JSON.stringify({ status: engine.asleep.size === 0 ? 'awake' : 'sleeping', tags }));
}

/** A pause keeps or ends what runs, as a sleep does, and says so by itself. */
export function answerPause(engine: Engine, exchange: Exchange): void {
  const mode = new URLSearchParams(exchange.query).get('mode') ?? 'abort';
  engine.paused = true;
  engine.scheduler.pause(true);
  if (mode === 'abort') engine.scheduler.abortAll();
  exchange.json(200, '{"status":"paused"}');
}

export function answerResume(engine: Engine, exchange: Exchange): void {
  engine.paused = false;
  engine.scheduler.pause(engine.asleep.size > 0);
  exchange.json(200, '{"status":"resumed"}');
}

export function answerPaused(engine: Engine, exchange: Exchange): void {
  exchange.json(200, `{"is_paused":${engine.paused}}`);
}

export function answerResetPrefixCache(engine: Engine, exchange: Exchange): void {
  engine.cache.reset();
  exchange.send(200, null, '');
}

/** Calls a method of every worker; the stand-in has one, whose methods all return nothing. */
export function answerCollectiveRpc(_engine: Engine, exchange: Exchange, body: Body): void {
  if (typeof body.method === 'string') exchange.json(200, '{"results":[null]}');
  else exchange.json(400, `{"detail":"Missing 'method' in request body"}`);
}

export function answerServerInfo(engine: Engine, exchange: Exchange): void {
  const note = 'stand-in engine: behaves like vLLM on the wire, has no model';
  exchange.json(200, JSON.stringify({ vllm_config: note, name: engine.options.name, vllm_env: {}, system_env: {} }));
}
