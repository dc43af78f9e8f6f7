import type { Context } from 'hono';
import { AppError } from '#base/errors.ts';
import { formatDecimal, MICRO_DIGITS, PICO_DIGITS } from '#base/money.ts';
import { type Catalog, type Model, type PriceVersion, taskTypes } from '#core/catalog/catalog.ts';
import type { Fleet } from '#core/fleet/fleet.ts';
import type { ApiKey } from '#core/keys/keys.ts';
import type { Routing } from '#core/routing/routing.ts';
import type { ModelAnswer, ModelListAnswer, PriceListAnswer } from '#edge/contract/models.ts';
import { generates, supportedParameters } from '#edge/inference/rules/rules.ts';
import { mayUse } from './choose-model.ts';

/** Public lists of models and prices. They do not show where or how a model runs. */

export interface ModelParts {
  readonly catalog: Catalog;
  readonly fleet: Pick<Fleet, 'status'>;
  readonly routing: Pick<Routing, 'coldStartMs'>;
}

type Caller = Pick<ApiKey, 'usableModels'>;

function modelRecord({ catalog, fleet, routing }: ModelParts, model: Model, { usableModels }: Caller): ModelAnswer {
  const price = catalog.price(model.id);
  // Micro-dollars per million tokens are pico-dollars per token.
  const perToken = (value: bigint): string => formatDecimal(value, PICO_DIGITS);
  return {
    id: model.id,
    object: 'model',
    created: model.createdAt,
    owned_by: model.ownedBy,
    parent: model.adapter === null ? null : parentOf(catalog, model, usableModels),
    name: model.name,
    aliases: [...model.aliases],
    // The list hides models that the key may not use.
    fallbacks: model.fallbacks.filter((name) => {
      const other = catalog.find(name);
      return other !== undefined && mayUse(usableModels, other);
    }),
    hugging_face_id: model.huggingFaceId,
    task_type: model.taskType,
    context_length: model.contextLength,
    max_model_len: model.contextLength,
    // The answer may use all of the context that the prompt leaves.
    max_output_length: generates(model) ? model.contextLength : null,
    input_modalities: model.taskType === 'vision' ? ['text', 'image'] : ['text'],
    supported_parameters: [...supportedParameters(model)],
    pricing:
      price === undefined
        ? null
        : {
            prompt: perToken(price.inputPerMTokMicroUsd),
            completion: perToken(price.outputPerMTokMicroUsd),
            input_cache_read: perToken(price.cachedInputPerMTokMicroUsd),
          },
    status: fleet.status(model.engine.id),
    expected_cold_start_seconds: coldStartSeconds(routing.coldStartMs(model)),
  };
}

/** Returns the base of an adapter; null if the key may not use the base, which is then hidden. */
function parentOf(catalog: Catalog, { engine: { id } }: Model, usable: ApiKey['usableModels']): string | null {
  const base = catalog.find(id);
  return base !== undefined && mayUse(usable, base) ? id : null;
}

/** Rounds up to tenths of a second; null if nothing has to start, or if the time is unknown. */
function coldStartSeconds(ms: number | null): number | null {
  return ms === null ? null : Math.ceil(ms / 100) / 10;
}

const isSameName = (one: string, other: string): boolean => one.toLowerCase() === other.toLowerCase();

/**
 * Returns the record of a model under one of its aliases; `aliases` are then its other names, with its id. The name is
 * the alias too, since some clients show only names.
 */
function aliasRecord(record: ModelAnswer, alias: string): ModelAnswer {
  const others = record.aliases.filter((name) => !isSameName(name, alias));
  return { ...record, id: alias, name: alias, aliases: [record.id, ...others] };
}

/**
 * Returns the aliases that the model list shows as models of their own: none that differs only in case from the id or
 * from an alias before it.
 */
function listedAliases({ id, aliases, engine }: Model): readonly string[] {
  if (!engine.listsAliases) return [];
  return aliases.filter((alias, at) => ![id, ...aliases.slice(0, at)].some((name) => isSameName(name, alias)));
}

/**
 * Returns the models that a caller may use, each once.
 * @throws AppError invalid_value for an unknown task
 */
export function modelRecords(parts: ModelParts, taskType: string | undefined, caller: Caller): ModelAnswer[] {
  return usableModels(parts, taskType, caller).map((model) => modelRecord(parts, model, caller));
}

/** Answers GET /v1/models?task_type= with the models that the key may use, each followed by its listed aliases. */
export function listModels(parts: ModelParts, taskType: string | undefined, caller: Caller): ModelListAnswer {
  const data = usableModels(parts, taskType, caller).flatMap((model) => {
    const record = modelRecord(parts, model, caller);
    return [record, ...listedAliases(model).map((alias) => aliasRecord(record, alias))];
  });
  return { object: 'list', data };
}

function usableModels(parts: ModelParts, taskType: string | undefined, { usableModels: usable }: Caller): Model[] {
  const known = taskTypes.find((task) => task === taskType);
  if (taskType !== undefined && known === undefined) {
    const message = `"task_type" must be one of ${taskTypes.join(', ')}.`;
    throw new AppError('invalid_value', { message, param: 'task_type' });
  }
  const models = known === undefined ? parts.catalog.list() : parts.catalog.byTask(known);
  return models.filter((model) => mayUse(usable, model));
}

/** Answers GET /v1/models/{id} as the list has it; the id may contain slashes, encoded or not. */
export function getModel(parts: ModelParts, id: string, caller: ApiKey): ModelAnswer {
  const model = parts.catalog.find(id);
  if (model === undefined || !mayUse(caller.usableModels, model)) {
    const message = `The model ${JSON.stringify(id.slice(0, 128))} does not exist. GET /v1/models lists the models.`;
    throw new AppError('model_not_found', { status: 404, message, param: 'model' });
  }
  const record = modelRecord(parts, model, caller);
  const alias = listedAliases(model).find((name) => isSameName(name, id));
  return alias === undefined ? record : aliasRecord(record, alias);
}

function perMillion(price: PriceVersion) {
  const shown = (value: bigint): string => formatDecimal(value, MICRO_DIGITS);
  return {
    input_per_million: shown(price.inputPerMTokMicroUsd),
    output_per_million: shown(price.outputPerMTokMicroUsd),
    cached_input_per_million: shown(price.cachedInputPerMTokMicroUsd),
  };
}

/** Answers GET /v1/pricing with USD per million tokens, and with `flex` if that tier is offered. */
export function listPrices({ catalog }: ModelParts): PriceListAnswer {
  const data = catalog.list().flatMap((model) => {
    const price = model.enabled ? catalog.price(model.id) : undefined;
    if (price === undefined) return [];
    const flex = catalog.price(model.id, 'flex');
    return [
      {
        model: model.id,
        ...perMillion(price),
        ...(flex !== undefined && { flex: perMillion(flex) }),
        currency: price.currency,
        effective_from: Math.floor(price.effectiveFrom.getTime() / 1000),
      },
    ];
  });
  return { object: 'list', data };
}

const modelsPrefix = '/v1/models/';

/** Returns the decoded model id of a path below /v1/models/. */
export function modelIdOf(context: Context): string {
  const encoded = new URL(context.req.url).pathname.slice(modelsPrefix.length);
  try {
    return decodeURIComponent(encoded);
  } catch {
    throw new AppError('invalid_request_error', {
      message: 'The model id in the path has an invalid URL encoding.',
      param: 'model',
    });
  }
}
