import type { KeyTable } from './keys.ts';

/**
 * Keys of litellm's configuration: https://docs.litellm.ai/docs/proxy/config_settings and
 * https://github.com/BerriAI/litellm/blob/main/litellm/types/router.py. litellm's parameters also accept any other
 * name.
 */

const perKey = 'limits are set for each key';
const noRoute = 'Headgate has no route for this';
const inEnvironment = "set these values as variables in the gateway's environment";

export const topKeys: KeyTable = {
  model_list: null,
  general_settings: 'create keys with POST /v1/keys; set the rest with environment variables',
  router_settings: null,
  litellm_settings: null,
  environment_variables: inEnvironment,
  credential_list: inEnvironment,
  callback_settings: 'see the log, /metrics and traces',
  guardrails: 'Headgate forwards requests and answers unchanged',
  policies: 'Headgate forwards requests and answers unchanged',
  policy_attachments: 'Headgate forwards requests and answers unchanged',
  prompts: 'Headgate forwards requests unchanged',
  include: 'import those files separately',
  assistant_settings: noRoute,
  finetune_settings: noRoute,
  files_settings: noRoute,
  default_vertex_config: noRoute,
  mcp_servers: noRoute,
  mcp_tools: noRoute,
  vector_store_registry: noRoute,
  search_tools: noRoute,
  worker_registry: 'gateways find each other through their database',
};

const byItself = 'Headgate routes by the load that engines report; each request names its model';

const ofRequest = "a request that the engine rejects gets the engine's error";
const fallbackKeys = {
  fallbacks: null,
  default_fallbacks: null,
  context_window_fallbacks: ofRequest,
  content_policy_fallbacks: ofRequest,
};

export const routerKeys: KeyTable = {
  model_group_alias: null,
  routing_strategy: byItself,
  ...fallbackKeys,
};

export const settingsKeys: KeyTable = { ...fallbackKeys };

export const entryKeys: KeyTable = {
  model_name: null,
  litellm_params: null,
  model_info: null,
  tpm: perKey,
  rpm: perKey,
};

export const costKeys = ['input_cost_per_token', 'output_cost_per_token', 'cache_read_input_token_cost'] as const;
const carriedCosts = Object.fromEntries(costKeys.map((key) => [key, null]));

const silence = 'HEADGATE_UPSTREAM_CONNECT_SECONDS, _FIRST_BYTE_SECONDS and _IDLE_SECONDS set this for all engines';
const retries = 'a request is retried once on another replica, if no answer has begun';
const routing = 'an engine file has one address';

export const parameterKeys: KeyTable = {
  model: null,
  api_base: null,
  base_url: null,
  api_key: null,
  custom_llm_provider: null,
  ...carriedCosts,
  tpm: perKey,
  rpm: perKey,
  itpm: perKey,
  otpm: perKey,
  max_parallel_requests: perKey,
  max_budget: perKey,
  budget_duration: perKey,
  default_api_key_tpm_limit: perKey,
  default_api_key_rpm_limit: perKey,
  timeout: silence,
  stream_timeout: silence,
  max_retries: retries,
  num_retries: retries,
  cooldown_time: retries,
  weight: routing,
  order: routing,
  tags: routing,
  tag_regex: routing,
  organization: 'Headgate sends no other headers to engines',
  extra_headers: 'Headgate sends no other headers to engines',
  litellm_credential_name:
    "set api_key_env in the engine file to the name of the gateway's environment variable with the key",
};

export const infoKeys: KeyTable = {
  mode: null,
  max_input_tokens: null,
  supports_vision: null,
  ...carriedCosts,
};
