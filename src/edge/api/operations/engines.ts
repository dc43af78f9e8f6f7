import { created, exampleId, requestId } from './examples.ts';
import type { Operation, Tag } from './operation.ts';

const load = {
  at: created,
  running: 2,
  waiting: 0,
  kv_cache_use: 0.31,
  prompt_tokens_per_second: 812.5,
  generation_tokens_per_second: 96.2,
};
const gpuSample = { at: created, memory_used_bytes: 77_309_411_328, memory_bytes: 85_899_345_920, busy: 0.93 };

const engine = {
  id: 'qwen3-32b',
  object: 'engine',
  name: 'Qwen3 32B',
  driver: 'docker',
  kind: 'vllm',
  warnings: [],
  file: 'engines/qwen3-32b.yaml',
  adapters: [],
  state: 'ready',
  since: created,
  held: false,
  last_failure: null,
  rollout: null,
  replicas: [
    {
      id: 'r1',
      state: 'ready',
      since: created,
      host: 'gpu-host-1',
      gpus: ['GPU-8a1b2c3d'],
      progress: null,
      running: 2,
      healthy: true,
      version: { name: '0.32.0', tried: true },
      deployment: null,
    },
  ],
  replicas_min: 1,
  replicas_max: 2,
  schedule: {
    entry: { cron: '0 8 * * 1-5', timezone: 'Europe/Berlin', min_replicas: 1, max_replicas: 2 },
    since: created,
    next: { cron: '0 20 * * 1-5', timezone: 'Europe/Berlin', min_replicas: 0, max_replicas: 1 },
    next_at: created + 43_200,
  },
  pinned: false,
  hosts: ['gpu-host-1'],
  gpus: ['GPU-8a1b2c3d'],
  gpus_needed: { count: 1, memory_bytes: 80_000_000_000, profile: null },
  memory_needed_bytes: null,
  group: null,
  queue: { running: 2, waiting: 0 },
  load,
  gpu_use: [{ id: 'GPU-8a1b2c3d', host: 'gpu-host-1', ...gpuSample }],
  start_times_ms: [92_000],
  last_start: {
    replica: 'r1',
    steps: [
      { phase: 'requested', at: created - 92, duration_ms: 2000 },
      { phase: 'creating', at: created - 90, duration_ms: 3000 },
      { phase: 'loading', at: created - 87, duration_ms: 86_000 },
      { phase: 'checking', at: created - 1, duration_ms: 1000 },
      { phase: 'ready', at: created, duration_ms: null },
    ],
    total_ms: 92_000,
    failure: null,
  },
};
const host = {
  name: 'gpu-host-1',
  object: 'host',
  reachable: true,
  trouble: null,
  pools: ['h100'],
  gpus: [
    {
      id: 'GPU-8a1b2c3d',
      memory_bytes: 85_899_345_920,
      profile: null,
      used_by: { engine: engine.id, replica: 'r1', stranger: null },
    },
  ],
  memory_bytes: null,
  replicas: [{ engine: engine.id, replica: 'r1', state: 'ready', memory_bytes: null }],
  strangers: [],
};

const running = {
  id: requestId,
  object: 'running_request',
  created_at: created,
  model: engine.id,
  endpoint: '/v1/chat/completions',
  organization_id: exampleId('org'),
  key_id: exampleId('key'),
  end_user: null,
  state: 'answering',
};

const unused = { object: 'unused_item', type: 'weights', name: 'acme/chat', host: 'local', bytes: 16_060_522_496 };

const operators = 'Requires a management key of a platform administrator.';
const command = `Returns when all gateways apply the command, or after five seconds. ${operators}`;

function commanded(operationId: string, summary: string, effect: string, answer: object): Operation {
  return { operationId, summary, description: `${effect} ${command}`, answer: { ...engine, ...answer } };
}

export const engines: Tag = {
  name: 'Engines',
  description: 'Operate the engines that serve models, and the hosts that they run on.',
  operations: {
    'GET /v1/admin/engines': {
      operationId: 'listEngines',
      summary: 'List engines',
      description:
        'Returns the engines of all engine files by id, with state, replicas and queue, and differences between ' +
        `gateways. ${operators}`,
      answer: {
        object: 'list',
        data: [engine],
        files: { read_at: created, refused: null, left_out: [] },
        differences: [],
        pending_prices: [],
      },
    },
    'GET /v1/admin/engines/{id}': {
      operationId: 'retrieveEngine',
      summary: 'Retrieve an engine',
      description: `Returns one engine with its state, replicas, devices, queue and last failure. ${operators}`,
      answer: engine,
    },
    'POST /v1/admin/engines/reload': {
      operationId: 'reloadEngines',
      summary: 'Reload engine files',
      description:
        'Reads all engine files again and applies them. An error in any file returns 422 with file, line and field, and ' +
        `changes nothing. ${operators}`,
      answer: { object: 'engines.reload', added: ['bge-m3'], changed: ['qwen3-32b'], removed: [] },
    },
    'POST /v1/admin/engines/{id}/start': commanded(
      'startEngine',
      'Start an engine',
      'Starts an engine, even if a command stopped it.',
      { state: 'starting', replicas: [], hosts: [], gpus: [], queue: { running: 0, waiting: 0 } },
    ),
    'POST /v1/admin/engines/{id}/stop': commanded(
      'stopEngine',
      'Stop an engine',
      'Stops an engine after its running requests; it stays stopped until start, restart or reset.',
      { state: 'draining' },
    ),
    'POST /v1/admin/engines/{id}/restart': commanded(
      'restartEngine',
      'Restart an engine',
      'Replaces every replica. If there is room for both, the old one stops when the new one is ready. An external ' +
        'engine returns 409.',
      {},
    ),
    'POST /v1/admin/engines/{id}/reset': commanded(
      'resetEngine',
      'Reset a failed engine',
      'Clears the failures of an engine and a stop by command; the next request starts the engine.',
      { state: 'stopped', replicas: [], hosts: [], gpus: [], queue: { running: 0, waiting: 0 } },
    ),
    'GET /v1/admin/engines/{id}/logs': {
      operationId: 'retrieveEngineLog',
      summary: 'Read or follow engine logs',
      description:
        'Returns the last lines of the replicas of an engine, oldest first (200 by default, at most 10,000). With ' +
        `\`follow=1\` it streams server-sent events. ${operators}`,
      answer: { object: 'list', data: [{ replica: 'r1', line: 'INFO: Application startup complete.' }] },
    },
    'GET /v1/admin/engines/{id}/history': {
      operationId: 'retrieveEngineHistory',
      summary: 'Read the recent load of an engine',
      description:
        'Returns samples of the last hour of an engine and its GPUs, oldest first. Each gateway takes its own samples ' +
        `while it runs, so they begin with the start of the gateway that answers. ${operators}`,
      answer: {
        object: 'engine_history',
        id: engine.id,
        load: [load],
        gpus: [{ id: 'GPU-8a1b2c3d', host: 'gpu-host-1', samples: [gpuSample] }],
      },
    },
    'GET /v1/admin/engines/{id}/file': {
      operationId: 'retrieveEngineFile',
      summary: 'Read an engine file',
      description:
        'Returns the text of the file of an engine, as it is now on the gateway that answers. A changed file takes ' +
        `effect with a reload. ${operators}`,
      answer: {
        object: 'engine_file',
        engine: engine.id,
        file: engine.file,
        text: 'version: 1\nid: qwen3-32b\n',
      },
    },
    'POST /v1/admin/engine-files/check': {
      operationId: 'checkEngineFile',
      summary: 'Check an engine file',
      description:
        'Returns the problems that a text has as an engine file, beside the other files of the gateway that answers. ' +
        `Writes nothing. ${operators}`,
      answer: {
        object: 'engine_file_check',
        problems: [{ line: 7, field: 'gpus.count', message: 'must be at least 1' }],
      },
    },
    'GET /v1/admin/engines/{id}/requests': {
      operationId: 'listRunningRequests',
      summary: 'List running requests',
      description:
        'Returns the requests that run on this gateway for the models of an engine, oldest first. Other gateways list ' +
        `theirs. ${operators}`,
      answer: { object: 'list', data: [running] },
    },
    'POST /v1/admin/engines/{id}/requests/{request_id}/cancel': {
      operationId: 'cancelRunningRequest',
      summary: 'Cancel a running request',
      description:
        'Ends a request that runs on this gateway. Its client gets an error, and the tokens that the engine has ' +
        `counted are charged. Other requests return 404. ${operators}`,
      answer: running,
    },
    'GET /v1/admin/unused-storage': {
      operationId: 'listUnusedStorage',
      summary: 'List unused images and weights',
      description:
        'Returns images that Headgate ran engines from and weights in the cache of this machine that no engine file ' +
        `names. ${operators}`,
      answer: { object: 'list', data: [unused] },
    },
    'DELETE /v1/admin/unused-storage/{name}': {
      operationId: 'deleteUnusedStorage',
      summary: 'Delete an unused image or weights',
      description:
        'Deletes the unused image of this name on all hosts, or the unused weights on this machine. An image that a ' +
        `container uses returns 409. ${operators}`,
      answer: { object: 'list', data: [unused] },
    },
    'GET /v1/admin/hosts': {
      operationId: 'listHosts',
      summary: 'List hosts',
      description: `Returns the hosts with their devices and the replicas that use them. ${operators}`,
      answer: { object: 'list', data: [host] },
    },
  },
};
