import type { KeyTable } from './keys.ts';

/**
 * Keys of litellm's configuration: https://docs.litellm.ai/docs/proxy/config_settings and
 * https://github.com/BerriAI/litellm/blob/main/litellm/types/router.py. litellm's parameters also accept any other
 * name.
 */

const perKey = 'set limits for API keys instead (headgate keys edit)';
const noRoute = 'Headgate does not offer this API';
const inEnvironment = "set these values as variables in the gateway's environment";

const unchanged = 'Headgate does not check or change requests and answers';

export const topKeys: KeyTable = {
  model_list: null,
  general_settings:
    '"headgate import litellm --database URL" imports virtual keys; compose/settings.md lists the settings of the gateway',
  router_settings: null,
  litellm_settings: null,
  environment_variables: inEnvironment,
  credential_list: inEnvironment,
  callback_settings: 'use the log of the gateway, /metrics or OpenTelemetry traces instead',
  guardrails: unchanged,
  policies: unchanged,
  policy_attachments: unchanged,
  prompts: 'Headgate does not change requests',
  include: 'import the included files separately',
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

const byItself = 'Headgate sends each request to the least busy replica of its model';

const ofRequest = 'a request that the engine rejects goes to no fallback';
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

const silence =
  'the gateway settings HEADGATE_UPSTREAM_CONNECT_SECONDS, _FIRST_BYTE_SECONDS and _IDLE_SECONDS set timeouts for all engines';
const retries = 'Headgate retries a failed request once, on another replica, if no part of the answer was sent';
const routing = 'Headgate sends each request to the least busy server of its model';

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
  weight: null,
  order: routing,
  tags: routing,
  tag_regex: routing,
  organization: 'Headgate cannot send additional headers to engines',
  extra_headers: 'Headgate cannot send additional headers to engines',
  litellm_credential_name:
    "set api_key_env in the engine file to the name of the gateway's environment variable with the key",
};

export const infoKeys: KeyTable = {
  mode: null,
  max_input_tokens: null,
  supports_vision: null,
  ...carriedCosts,
};
