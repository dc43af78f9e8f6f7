import type { KeyTable } from './keys.ts';

/**
 * Every key of llama-swap's configuration, from its config-schema.json and the structs that the file is read into:
 * https://github.com/mostlygeek/llama-swap/tree/main/internal/config
 */

const sideBySide = 'Headgate runs all engines that fit at the same time; group and memory_gib in a file limit this';
const ownName = 'each request names its model';
const byName = 'requests name a model by id, name or hugging_face_id';
const log = 'Headgate logs JSON lines; LOG_LEVEL sets the level';
const asSent = 'Headgate forwards requests unchanged';
const silence = 'HEADGATE_UPSTREAM_CONNECT_SECONDS, _FIRST_BYTE_SECONDS and _IDLE_SECONDS set this for all engines';
const ending = 'drain_seconds in the engine file sets how long requests may still run while the engine stops';
const loading = 'while a model starts, streams get comment lines';

export const topKeys: KeyTable = {
  models: null,
  peers: null,
  macros: null,
  hooks: null,
  healthCheckTimeout: null,
  globalTTL: null,
  apiKeys: 'create keys with POST /v1/keys',
  groups: null,
  matrix: sideBySide,
  routing: null,
  profiles: ownName,
  selectors: ownName,
  upstream: 'engines are reachable only by the routes under /v1',
  unloadTimeout: ending,
  sendLoadingState: loading,
  includeAliasesInList: byName,
  logLevel: log,
  logTimeFormat: log,
  logToStdout: log,
  logRequests: log,
  metricsMaxInMemory: 'metrics are at /metrics; Prometheus stores them',
  performance: 'metrics are at /metrics; Prometheus stores them',
  captureBuffer: 'a key with store_requests stores requests and answers',
  store: 'usage is stored in PostgreSQL',
  ui: 'GET /v1/usage/requests lists requests',
  startPort: 'Headgate chooses free ports',
};

export const hookKeys: KeyTable = { on_startup: null };
export const startupKeys: KeyTable = { preload: null };

/** Keys of one group. */
export const groupKeys: KeyTable = { persistent: null, members: null, swap: null, exclusive: null };

export const routingKeys: KeyTable = {
  router: null,
  scheduler: 'waiting requests are served in turn, by key',
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
  cmdStop: 'Headgate stops its engines itself',
  description: 'the list of models has only names',
  metadata: 'the list of models has no further fields',
  timeouts: silence,
  unloadTimeout: ending,
  healthCheckTimeout: 'llama-swap reads it only at the top level',
  sendLoadingState: loading,
  compat: 'engines are reachable only by HTTP',
};

export const capabilityKeys: KeyTable = {
  in: null,
  reranker: null,
  context: null,
  out: 'set task_type in the engine file',
  tools: "the model's own arguments turn tool calls on",
};

export const peerKeys: KeyTable = {
  proxy: null,
  apiKey: null,
  models: null,
  filters: asSent,
  timeouts: silence,
};
