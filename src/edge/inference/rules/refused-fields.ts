import type { JsonMember } from '#base/json/json.ts';
import { type AllowableField, allowableFields, type EngineDefinition } from '#core/catalog/catalog.ts';
import { isNull, isObject, valueText } from '#edge/inference/json-member.ts';
import {
  comparedKeys,
  type Endpoint,
  endpoints,
  type FieldDecision,
  type Media,
  olderVllmFields,
  renamedFields,
} from '#edge/inference/request/request.ts';
import {
  atMost,
  checkBackground,
  checkBadWords,
  checkCacheSalt,
  checkCut,
  checkEcho,
  checkEncodingFormat,
  checkFree,
  checkInt32,
  checkInt64,
  checkItems,
  checkRepetitionDetection,
  checkStop,
  checkTemplateArguments,
  checkTruncation,
  unlessAllowed,
  unlessAllowedOr,
} from './field-bounds.ts';
import { type FieldRule, refuse, type RuleRequest } from './field-rule.ts';
import {
  checkOutputConfig,
  checkResponseFormat,
  checkStructuredOutputs,
  checkTextFormat,
  checkTools,
} from './structured-outputs.ts';

/**
 * Rejects media that must not reach an engine.
 * @throws AppError unsupported_parameter, with the field in `param`
 */
function refuseMedia(media: Media, { allow, mediaDomains, mediaMax }: EngineDefinition): void {
  const { uuid, tensor, promptEmbeds, pil } = media.params;
  // vLLM stores media under the name that they come with, for everybody who sends that name later.
  if (uuid !== null && !allow.includes('uuid')) {
    throw refuse(uuid, '"uuid" is not supported in parts. Omit it, and send the media with each request.');
  }
  if (!media.present) return;
  if (pil !== null) throw refuse(pil, 'Media cannot be sent as "image_pil". Send media as data: URLs.');
  if (tensor !== null && !allow.includes('media_embeds')) {
    throw refuse(tensor, 'Media cannot be sent as embeddings to this model. Send media as data: URLs.');
  }
  if (promptEmbeds !== null && !allow.includes('prompt_embeds')) {
    throw refuse(promptEmbeds, 'A "prompt_embeds" part is not supported for this model.');
  }
  for (const { url, param } of media.remote) checkUrl(url, param, mediaDomains);
  if (media.count > mediaMax) {
    throw refuse(
      media.params.any ?? 'messages',
      `A request may have at most ${mediaMax} images, audio files and videos.`,
    );
  }
}

/** Matches text that may hold the type of such a block: as it is, or with escaped letters, which no encoder writes. */
const definitionSign = /tool_definition|\\u00[4-7][0-9a-f]/i;

/**
 * Rejects tools that a message of Anthropic's form defines, as vLLM accepts them since 0.32. A grammar is made of them
 * without the bounds of `tools`. References to tools pass.
 */
const refuseDefinedTools: FieldRule = ({ fields, endpoint }, member) => {
  if (endpoint.toolForm !== 'anthropic') return;
  const text = valueText(fields.text, member);
  if (!definitionSign.test(text) || !definesTool(text)) return;
  throw refuse(
    member.key,
    'Tools cannot be defined in "messages". Define them in "tools" with "defer_loading", and name them here.',
  );
};

function definesTool(text: string): boolean {
  let messages: unknown;
  try {
    messages = JSON.parse(text);
  } catch {
    // The engine rejects it.
    return false;
  }
  if (!Array.isArray(messages)) return false;
  const blocks = messages.flatMap((message: unknown) => (isObject(message) ? message['content'] : []));
  return blocks.some(
    (block) => isObject(block) && isObject(block['tool']) && block['tool']['type'] === 'tool_definition',
  );
}

/**
 * Matches only the plainest form. Parsers differ on credentials, backslashes, control characters and missing slashes,
 * so that another form could name one host here and another host in the engine.
 */
const plainUrl = /^https?:\/\/([a-z0-9.-]+)(?::\d{1,5})?(?:[/?#][\x21-\x5b\x5d-\x7e]*)?$/i;

function checkUrl(url: string, param: string, domains: readonly string[]): void {
  const host = plainUrl.exec(url)?.[1]?.toLowerCase();
  if (domains.some((domain) => host === domain.toLowerCase())) return;
  const hint =
    domains.length === 0 ? 'send the media as a data: URL' : `use a data: URL, or a URL of ${domains.join(', ')}`;
  throw refuse(param, `Media cannot be fetched from this address: ${hint}.`);
}

/**
 * Rules for fields that must not reach an engine: fields that affect its scheduling, its caches, its templates or its
 * network, and fields that cost more than they bill. `vllm-fields.ts` decides for each field of vLLM. Fields that vLLM
 * does not have pass.
 */

/** Bounds by the name of a top-level field. `elsewhere`: `refuseMedia` bounds it, or the code that counts inputs. */
const bounds: Readonly<Record<string, FieldRule | 'elsewhere'>> = {
  n: 'elsewhere',
  messages: refuseDefinedTools,
  prompt: 'elsewhere',
  input: checkItems,
  ...Object.fromEntries(comparedKeys.map((key) => [key, 'elsewhere' as const])),
  echo: checkEcho,
  encoding_format: checkEncodingFormat,
  chat_template_kwargs: checkTemplateArguments,
  stop: checkStop,
  stop_sequences: checkStop,
  output_config: checkOutputConfig,
  stop_token_ids: atMost(64),
  allowed_token_ids: atMost(1024),
  logit_bias: atMost(1024),
  bad_words: checkBadWords,
  thinking_token_budget: checkInt32,
  top_k: checkInt64,
  stream_interval: checkInt64,
  repetition_detection: checkRepetitionDetection,
  truncate_prompt_tokens: checkCut,
  max_tokens_per_query: checkCut,
  max_tokens_per_doc: checkCut,
  response_format: checkResponseFormat,
  structured_outputs: checkStructuredOutputs,
  tools: checkTools,
  text: checkTextFormat,
  truncation: checkTruncation,
  background: checkBackground,
};

/** Rules for refused fields that accept a value with which the field asks for nothing. */
const refusals: Readonly<Record<string, FieldRule>> = {
  use_beam_search: unlessAllowedOr('false', 'use_beam_search'),
  best_of: unlessAllowedOr('1', 'best_of'),
  priority: unlessAllowedOr('0', 'priority'),
  logits_processors: unlessAllowedOr('[]', 'logits_processors'),
  media_io_kwargs: unlessAllowedOr('{}', 'media_io_kwargs'),
  mm_processor_kwargs: unlessAllowedOr('{}', 'mm_processor_kwargs'),
  vllm_xargs: unlessAllowedOr('{}', 'vllm_xargs'),
};

const isAllowable = (field: string): field is AllowableField => (allowableFields as readonly string[]).includes(field);

function ruleOf(field: string, decision: FieldDecision): FieldRule | null {
  if (field === 'cache_salt') return checkCacheSalt;
  if (decision === 'refused') {
    if (!isAllowable(field))
      throw new Error(`${field} is marked refused, but is not among the fields that an engine file can allow`);
    return refusals[field] ?? unlessAllowed(field);
  }
  if (decision !== 'bounded') return null;
  const rule = bounds[field];
  if (rule === undefined) throw new Error(`${field} is bounded, but has no rule in refused-fields.ts`);
  return rule === 'elsewhere' ? null : rule;
}

/** A field that any route of vLLM rejects is rejected on all routes: no other route has it with another meaning. */
const refusedAnywhere = endpoints.flatMap(({ fields }: Endpoint) =>
  Object.entries(fields).filter(([, decision]) => decision === 'refused'),
);

/** Rejects a field that newer engines ignore, and names the field that they read. */
const renamed =
  (name: string | null): FieldRule =>
  (_, { key }) => {
    const instead = name === null ? 'Omit it' : `Use "${name}"`;
    throw refuse(key, `Engines ignore "${key}" since vLLM 0.12. ${instead}.`);
  };

function rulesOf({ fields }: Endpoint): ReadonlyMap<string, FieldRule> {
  const decided = [...refusedAnywhere, ...Object.entries(olderVllmFields), ...Object.entries(fields)];
  const old = Object.entries(renamedFields).map(([field, name]): [string, FieldRule] => [field, renamed(name)]);
  return new Map([
    ...old,
    ...decided.flatMap(([field, decision]): [string, FieldRule][] => {
      const rule = ruleOf(field, decision);
      return rule === null ? [] : [[field, rule]];
    }),
  ]);
}

const rules = new Map(endpoints.map((endpoint: Endpoint) => [endpoint, rulesOf(endpoint)]));

/** Rejects a field that models here do not serve. Empty lists ask for nothing. */
function refuseLacking({ fields }: RuleRequest, member: JsonMember): void {
  if (/^\[\s*\]$/.test(fields.text.slice(member.valueStart, Math.min(member.valueEnd, member.valueStart + 64)))) return;
  const instead = member.key === 'conversation' ? 'Use "previous_response_id"' : 'Omit it';
  throw refuse(member.key, `"${member.key}" is not supported. ${instead}.`);
}

/**
 * Checks the fields of a request that its engine should not get as they are.
 * @throws AppError unsupported_parameter, invalid_value or context_length_exceeded, with the field in `param`
 */
export function refuseUnsupported(checked: Omit<RuleRequest, 'engine'>, choicesMax: number): void {
  const { fields, model, endpoint } = checked;
  const request: RuleRequest = { ...checked, engine: model.engine };
  const known = rules.get(endpoint);
  if (endpoint.isFree === true) checkFree(request);
  for (const member of fields.members.values()) {
    const rule = known?.get(member.key);
    if (isNull(fields.text, member)) continue;
    if (endpoint.lackingFields?.includes(member.key) === true) refuseLacking(request, member);
    rule?.(request, member);
  }
  if (fields.serviceTier === 'flex' && model.engine.flexPricing === null) {
    throw refuse('service_tier', 'The service tier "flex" is not offered for this model.');
  }
  const limit = model.engine.nMax ?? choicesMax;
  if (fields.choices > limit) throw refuse('n', `"n" may be at most ${limit}.`);
  refuseMedia(fields.media, model.engine);
}
