import type { Model } from '#core/catalog/catalog.ts';
import {
  atMost,
  checkBadWords,
  checkCacheSalt,
  checkCut,
  checkEcho,
  checkEncodingFormat,
  checkInt32,
  checkRepetitionDetection,
  checkStop,
  checkTemplateArguments,
  unlessAllowed,
  unlessAllowedOrFalse,
} from './field-bounds.ts';
import { type FieldRule, refuse, type RuleRequest } from './field-rule.ts';
import type { InferenceEndpoint, RequestFields } from './fields.ts';
import { refuseMedia } from './media-rules.ts';
import { valueText } from './member.ts';
import {
  checkGrammar,
  checkGuidedChoice,
  checkGuidedJson,
  checkRegex,
  checkResponseFormat,
  checkStructuralTag,
  checkStructuredOutputs,
  checkTools,
} from './structured-outputs.ts';

/**
 * What is not handed to an engine: fields that reach into its scheduling, its caches, its templates or its network,
 * and those that cost more than they bill. `vllm-fields.ts` says so of each field that vLLM has; those that it does
 * not have pass.
 */

const plainlyRefused = [
  'priority',
  'request_id',
  'session_id',
  'kv_transfer_params',
  'ec_transfer_params',
  'prompt_embeds',
  'chat_template',
  'mm_processor_kwargs',
  'media_io_kwargs',
  'vllm_xargs',
  'logits_processors',
  'best_of',
  'prompt_logprobs',
] as const;

const rules: ReadonlyMap<string, FieldRule> = new Map<string, FieldRule>([
  ...plainlyRefused.map((field): [string, FieldRule] => [field, unlessAllowed(field)]),
  ['use_beam_search', unlessAllowedOrFalse('use_beam_search')],
  ['echo', checkEcho],
  ['encoding_format', checkEncodingFormat],
  ['cache_salt', checkCacheSalt],
  ['chat_template_kwargs', checkTemplateArguments],
  ['stop', checkStop],
  ['stop_token_ids', atMost(64)],
  ['allowed_token_ids', atMost(1024)],
  ['logit_bias', atMost(1024)],
  ['bad_words', checkBadWords],
  ['thinking_token_budget', checkInt32],
  ['repetition_detection', checkRepetitionDetection],
  ['truncate_prompt_tokens', checkCut],
  ['max_tokens_per_query', checkCut],
  ['max_tokens_per_doc', checkCut],
  ['response_format', checkResponseFormat],
  ['structured_outputs', checkStructuredOutputs],
  ['tools', checkTools],
  // What older versions of vLLM call these.
  ['guided_json', checkGuidedJson],
  ['guided_choice', checkGuidedChoice],
  ['guided_regex', checkRegex],
  ['guided_whitespace_pattern', checkRegex],
  ['guided_grammar', checkGrammar],
  ['guided_decoding_backend', checkGrammar],
  ['structural_tag', checkStructuralTag],
]);

/**
 * Looks at the fields of a request that its engine should not get as they are.
 * @throws AppError unsupported_parameter, invalid_value or context_length_exceeded, the field in `param`
 */
export function refuseUnsupported(
  fields: RequestFields,
  model: Model,
  endpoint: InferenceEndpoint,
  choicesMax: number,
): void {
  const request: RuleRequest = { fields, endpoint, engine: model.engine };
  for (const member of fields.members.values()) {
    const rule = rules.get(member.key);
    if (rule !== undefined && valueText(fields.text, member) !== 'null') rule(request, member);
  }
  if (fields.serviceTier === 'flex' && model.engine.flexPricing === null) {
    throw refuse('service_tier', 'The service tier "flex" is not offered for this model.');
  }
  const limit = model.engine.nMax ?? choicesMax;
  if (fields.choices > limit) throw refuse('n', `"n" may be at most ${limit}.`);
  refuseMedia(fields.media, model.engine);
}
