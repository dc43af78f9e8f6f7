import type { KeyTable } from './keys.ts';

/**
 * Every key of llama-swap's configuration, from its config-schema.json and the structs that the file is read into:
 * https://github.com/mostlygeek/llama-swap/tree/main/internal/config
 */

const sideBySide =
  'Headgate runs side by side what there is room for; group and memory_gib in a file say what there is not';
const ownName = 'a request names its model itself';
const byName = 'a request names a model by id, name or hugging_face_id';
const log = 'the log is JSON lines; LOG_LEVEL says how much of them';
const asSent = 'requests reach the engine as they were sent';
const silence = 'HEADGATE_UPSTREAM_CONNECT_SECONDS, _FIRST_BYTE_SECONDS and _IDLE_SECONDS say it for all engines';
const ending = 'drain_seconds in its file is how long requests may run on when it is stopped';
const loading = 'while a model starts, streams get comment lines';

export const topKeys: KeyTable = {
  models: null,
  peers: null,
  macros: null,
  hooks: null,
  healthCheckTimeout: null,
  globalTTL: null,
  apiKeys: 'make keys with POST /v1/keys',
  groups: null,
  matrix: sideBySide,
  routing: null,
  profiles: ownName,
  selectors: ownName,
  upstream: 'engines are reached by the routes under /v1 only',
  unloadTimeout: ending,
  sendLoadingState: loading,
  includeAliasesInList: byName,
  logLevel: log,
  logTimeFormat: log,
  logToStdout: log,
  logRequests: log,
  metricsMaxInMemory: 'metrics are at /metrics, for Prometheus to keep',
  performance: 'metrics are at /metrics, for Prometheus to keep',
  captureBuffer: 'a key with store_requests keeps requests and answers',
  store: 'usage is kept in PostgreSQL',
  ui: 'GET /v1/usage/requests lists requests',
  startPort: 'ports are those that are free',
};

export const hookKeys: KeyTable = { on_startup: null };
export const startupKeys: KeyTable = { preload: null };

/** Keys of one group. */
export const groupKeys: KeyTable = { persistent: null, members: null, swap: null, exclusive: null };

export const routingKeys: KeyTable = {
  router: null,
  scheduler: 'requests that wait take turns by their key',
};
export const routerKeys: KeyTable = { use: null, settings: null };
export const routerSettingsKeys: KeyTable = { groups: null, matrix: sideBySide };

export const modelKeys: KeyTable = {
  cmd: null,
  proxy: null,
  name: null,
  aliases: null,
  env: null,
  ttl: null,
  macros: null,
  capabilities: null,
  checkEndpoint: null,
  concurrencyLimit: 'limits are set for each key',
  useModelName: null,
  unlisted: 'every enabled model is listed',
  filters: asSent,
  cmdStop: 'Headgate stops what it has started itself',
  description: 'the list of models has names alone',
  metadata: 'the list of models has no further fields',
  timeouts: silence,
  unloadTimeout: ending,
  healthCheckTimeout: 'llama-swap reads it of the whole configuration alone',
  sendLoadingState: loading,
  compat: 'engines are reached by HTTP only',
};

export const capabilityKeys: KeyTable = {
  in: null,
  reranker: null,
  context: null,
  out: 'task_type in its file says what it is for',
  tools: 'whether a model calls tools is said by its own arguments',
};

export const peerKeys: KeyTable = {
  proxy: null,
  apiKey: null,
  models: null,
  filters: asSent,
  timeouts: silence,
};
