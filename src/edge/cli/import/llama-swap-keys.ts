import type { KeyTable } from './keys.ts';

/**
 * Every key of llama-swap's configuration, from its config-schema.json and the structs that the file is read into:
 * https://github.com/mostlygeek/llama-swap/tree/main/internal/config
 */

const sideBySide =
  'Headgate runs all engines that fit at the same time; set group or memory_gib in engine files to limit this';
const ownName = 'each request must name its model';
const byName = 'the model list has ids only, but requests may also use an alias, the name or the hugging_face_id';
const log = 'Headgate logs JSON lines to standard output; LOG_LEVEL sets the level';
const asSent = 'set overrides in the engine files of the peer instead';
const silence =
  'the gateway settings HEADGATE_UPSTREAM_CONNECT_SECONDS, _FIRST_BYTE_SECONDS and _IDLE_SECONDS set timeouts for all engines';
const ending = 'set drain_seconds in the engine file: the time that running requests get when the engine stops';
const loading = 'Headgate always sends comment lines in streams while a model starts';

export const topKeys: KeyTable = {
  models: null,
  peers: null,
  macros: null,
  hooks: null,
  healthCheckTimeout: null,
  globalTTL: null,
  apiKeys: 'create keys with "headgate keys create"',
  groups: null,
  matrix: sideBySide,
  routing: null,
  profiles: ownName,
  selectors: ownName,
  upstream: 'clients reach engines only through the routes under /v1',
  unloadTimeout: ending,
  sendLoadingState: loading,
  includeAliasesInList: byName,
  logLevel: log,
  logTimeFormat: log,
  logToStdout: log,
  logRequests: log,
  metricsMaxInMemory: 'let Prometheus collect /metrics',
  performance: 'let Prometheus collect /metrics',
  captureBuffer: 'to store requests and answers, create a key with --store-requests on',
  store: 'Headgate stores usage in PostgreSQL',
  ui: 'the portal lists requests, as "headgate usage requests" does',
  startPort: 'Headgate chooses free ports itself',
};

export const hookKeys: KeyTable = { on_startup: null };
export const startupKeys: KeyTable = { preload: null };

/** Keys of one group. */
export const groupKeys: KeyTable = { persistent: null, members: null, swap: null, exclusive: null };

export const routingKeys: KeyTable = {
  router: null,
  scheduler: 'Headgate serves waiting requests in turn, one API key after another',
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
  concurrencyLimit: 'set limits for API keys instead (headgate keys edit)',
  useModelName: null,
  unlisted: 'Headgate lists every enabled model',
  filters: null,
  cmdStop: 'Headgate stops its engines itself',
  description: 'the model list of Headgate has no descriptions',
  metadata: 'the model list of Headgate has no fields of your own',
  timeouts: silence,
  unloadTimeout: ending,
  healthCheckTimeout: 'llama-swap uses it only at the top level of its file',
  sendLoadingState: loading,
  compat: 'Headgate sends requests to engines unchanged',
};

export const filterKeys: KeyTable = {
  stripParams: null,
  strip_params: null,
  setParams: null,
  setParamsByID: 'the overrides of an engine file apply to all names of its model',
};

export const capabilityKeys: KeyTable = {
  in: null,
  reranker: null,
  context: null,
  out: 'set task_type in the engine file instead',
  tools: 'turn tool calls on with the arguments of the model server, in command or args',
};

export const peerKeys: KeyTable = {
  proxy: null,
  apiKey: null,
  models: null,
  filters: asSent,
  timeouts: silence,
};
