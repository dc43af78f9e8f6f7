import { describe, expect, it } from 'vitest';
import { stringify } from 'yaml';
import { useFolders } from '#test/cli/run-cli.ts';
import { type Imported, importInto } from './import-into.ts';

const folders = useFolders();
const run = (program: string, config: object): Promise<Imported> => importInto(folders(), program, stringify(config));
const secret = 'hf_nobodymayseethisone00000';

const words = (text: string): string[] => text.trim().split(/\s+/);

/** Every key of a value, once, as a configuration that holds it would lose it. */
function keysOf(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(keysOf);
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, member]) => [key, ...keysOf(member)]);
}

/** Checks whether one of the notes about something names a key as a word of its own. */
function isNamed(notes: readonly string[], about: string, key: string): boolean {
  const word = new RegExp(String.raw`(^|[^\w])${key}($|[^\w])`);
  return notes.some((note) => note.startsWith(`${about}: `) && word.test(note.slice(about.length + 2)));
}

describe('headgate import llama-swap', () => {
  /** Every key that llama-swap's schema has for a model, with values that say something. */
  const model = {
    cmd: 'llama-server --port ${PORT} -m /models/a.gguf -hf acme/A ${flags}',
    macros: { flags: '--jinja', wait: 77 },
    name: 'Shown',
    aliases: ['also'],
    env: ['A=1'],
    ttl: '${wait}',
    proxy: 'http://localhost:${PORT}/sub',
    checkEndpoint: '/ready',
    useModelName: 'inner',
    cmdStop: 'kill ${PID}',
    description: 'what it is for',
    unloadTimeout: 7,
    unlisted: true,
    concurrencyLimit: 3,
    sendLoadingState: true,
    healthCheckTimeout: 60,
    metadata: { team: secret },
    filters: {
      stripParams: 'top_k',
      strip_params: 'top_k',
      setParams: { seed: 1, n: 2 },
      setParamsByID: { also: { n: 1 } },
    },
    timeouts: { connect: 1, keepalive: 2, responseHeader: 3, tlsHandshake: 4, expectContinue: 5, idleConn: 6 },
    compat: { ignoreWebsockets: true },
    capabilities: { in: ['text', 'image', 'audio'], out: ['text'], tools: true, reranker: false, context: 4096 },
  };
  const whole = {
    healthCheckTimeout: 90,
    globalTTL: 30,
    unloadTimeout: 5,
    logLevel: 'debug',
    logTimeFormat: 'ansic',
    logToStdout: 'both',
    logRequests: true,
    metricsMaxInMemory: 5,
    captureBuffer: 6,
    store: { path: '/x.db' },
    ui: { activity: { session_id: ['X'] } },
    performance: { disabled: true, every: '5s' },
    startPort: 6000,
    sendLoadingState: true,
    includeAliasesInList: true,
    apiKeys: [secret],
    profiles: { night: { description: 'd', pins: { a: 'b' } } },
    selectors: { any: { strategy: 'spillover', targets: ['a'] } },
    upstream: { ignorePaths: ['x'] },
    hooks: { on_startup: { preload: ['a', 'nobody'] } },
    groups: { first: { swap: false, exclusive: false, persistent: false, members: ['a'] } },
    matrix: { vars: { x: 'a' }, evict_costs: { x: 1 }, sets: { s: 'x' } },
    routing: {
      scheduler: { use: 'fifo', settings: { fifo: { priority: { a: 1 } } } },
      router: { use: 'group', settings: { groups: { second: { members: ['a'] } }, matrix: {} } },
    },
  };

  it('names every key without an equivalent in an engine file', async () => {
    const peer = { proxy: 'https://far.example', apiKey: '${env.FAR}', models: ['x'] };
    const peers = { far: { ...peer, filters: { stripParams: 'a' }, timeouts: { connect: 1 } } };
    const { notes, everything, engines } = await run('llama-swap', { ...whole, models: { a: model }, peers });
    const carried = ['healthCheckTimeout', 'globalTTL', 'hooks', 'groups', 'routing'];
    for (const key of Object.keys(whole).filter((name) => !carried.includes(name))) {
      expect(isNamed(notes, '-', key), key).toBe(true);
    }
    expect(notes).toContain('-: hooks.on_startup.preload: there is no model nobody');
    for (const inner of ['night', 'any', 'path', 'activity', 'every', 'ignorePaths', 'vars', 'sets', 'scheduler']) {
      expect(isNamed(notes, '-', inner), inner).toBe(true);
    }
    expect(notes).toContain(
      'a: it is in 2 groups, and an engine file can have only one: the file has the first, first',
    );
    const kept = ['cmd', 'aliases', 'macros', 'name', 'env', 'ttl', 'capabilities', 'filters'];
    for (const key of Object.keys(model).filter((name) => !kept.includes(name))) {
      expect(isNamed(notes, 'a', key), key).toBe(true);
    }
    for (const inner of ['team', 'also', 'responseHeader', 'idleConn', 'audio']) {
      expect(isNamed(notes, 'a', inner), inner).toBe(true);
    }
    for (const inner of ['capabilities.out', 'capabilities.tools', 'inner', '/ready', '/sub']) {
      expect(
        notes.some((note) => note.startsWith('a: ') && note.includes(inner)),
        inner,
      ).toBe(true);
    }
    for (const key of ['filters', 'timeouts', 'stripParams', 'connect']) expect(isNamed(notes, 'far', key)).toBe(true);
    expect(everything).not.toContain(secret);
    expect(notes).toContain('a: filters: n: not imported; overrides of an engine file cannot set it to this value');
    expect(engines.get('a')).toMatchObject({
      name: 'Shown',
      requestChanges: { defaults: {}, overrides: { top_k: null, seed: 1 } },
      taskType: 'vision',
      contextLength: 4096,
      driver: {
        env: { A: '1' },
        idleMs: 77_000,
        startTimeoutMs: 90_000,
        replicas: { min: 1 },
        group: { name: 'first', swap: false, exclusive: false, persistent: false },
        command: expect.arrayContaining(['--jinja']),
      },
    });
  });

  it('names an unknown key at any place', async () => {
    const tomorrow = (name: string): object => ({ [name]: { inner: 1 } });
    const config = {
      ...tomorrow('top_one'),
      models: { a: { cmd: 'x --port ${PORT}', ...tomorrow('model_one'), capabilities: tomorrow('able_one') } },
      peers: { far: { proxy: 'http://far.example', models: ['x'], ...tomorrow('peer_one') } },
      groups: { g: { members: ['a'], ...tomorrow('group_one') } },
      hooks: { ...tomorrow('hook_one'), on_startup: tomorrow('start_one') },
      routing: { ...tomorrow('way_one'), router: { ...tomorrow('router_one'), settings: tomorrow('setting_one') } },
    };
    const { notes } = await run('llama-swap', config);
    const all = notes.join('\n');
    for (const key of keysOf(config).filter((name) => name.endsWith('_one'))) expect(all).toContain(`${key} (inner)`);
  });

  it('imports values from a YAML anchor', async () => {
    const text = [
      'base: &base {ttl: 55, metadata: {team: a}}',
      'models:',
      '  a:',
      '    <<: *base',
      '    cmd: x --port ${PORT} -c 4096',
    ].join('\n');
    const { engines, notes } = await importInto(folders(), 'llama-swap', text);
    expect(engines.get('a')).toMatchObject({ driver: { idleMs: 55_000 } });
    expect(isNamed(notes, 'a', 'metadata')).toBe(true);
    expect(isNamed(notes, '-', 'base')).toBe(true);
  });

  it("removes rights on the host from a container's command, and lists them", async () => {
    const cmd = [
      'sudo docker run --rm --name a --privileged --ipc=host --network host --cap-add SYS_ADMIN --runtime runsc',
      '-v /var/run/docker.sock:/var/run/docker.sock -v /:/host:ro -v /srv/models:/models:ro,z --shm-size huge',
      '-e VLLM_API_KEY=x --gpus 1 --gpus 2 -p ${PORT}:8000 vllm/vllm-openai:v0.11.0 acme/A --max-model-len 4096',
    ].join(' ');
    const { engines, notes, everything } = await run('llama-swap', { models: { a: { cmd } } });
    expect(engines.get('a')).toMatchObject({
      driver: {
        type: 'docker',
        volumes: [{ source: '/srv/models', target: '/models', readOnly: true }],
        gpus: { count: 1 },
        shmBytes: null,
      },
    });
    for (const note of [
      'a: the volume /var/run/docker.sock:/var/run/docker.sock: not imported; /var/run/docker.sock is a socket',
      'a: the volume /:/host:ro: not imported; / gives control over the machine',
      'a: the volume /srv/models: imported without its options z',
      "a: docker's option --privileged: not imported",
      "a: docker's option --cap-add: not imported",
      "a: docker's option --runtime runsc: not imported",
      "a: docker's option --gpus is given more than once",
      "a: docker's --rm, --name, --ipc, --network: not imported; Headgate sets this itself",
      'a: shm_size: not imported; huge is not a valid size',
      'a: the variable VLLM_API_KEY: not imported',
    ]) {
      expect(notes, note).toContainEqual(expect.stringContaining(note));
    }
    expect(everything).not.toContain('docker.sock"');
  });

  it('leaves out a command whose shell starts a container with rights on the host', async () => {
    const cmd = `sh -c 'docker run --privileged -p \${PORT}:80 acme/server:v1'`;
    const { code, notes } = await run('llama-swap', { models: { a: { cmd }, b: { cmd: 'x --port ${PORT}' } } });
    expect(code).toBe(0);
    expect(notes).toContainEqual(expect.stringMatching(/^a: not imported: command.*--privileged gives rights/));
  });
});

describe('headgate import litellm', () => {
  const carriedParameters = {
    model: 'acme/chat',
    custom_llm_provider: 'hosted_vllm',
    api_base: 'http://gpu.example:8000/v1',
    api_key: 'os.environ/HOUSE_KEY',
    input_cost_per_token: 0.000001,
    output_cost_per_token: 0.000002,
    cache_read_input_token_cost: 0.0000005,
  };
  /** Other parameters that litellm documents for a deployment. */
  const otherParameters = words(`
    base_url tpm rpm itpm otpm max_parallel_requests max_budget budget_duration timeout stream_timeout
    max_retries num_retries cooldown_time order tags tag_regex organization extra_headers
    litellm_credential_name api_version drop_params region_name configurable_clientside_auth_params
    default_api_key_tpm_limit default_api_key_rpm_limit input_cost_per_second
    input_cost_per_token_batches cache_creation_input_token_cost mock_response use_in_pass_through
    merge_reasoning_content_in_choices temperature extra_body guardrails keepalive_seconds
    complexity_router_config model_info vector_store_id seed ssl_verify
  `);
  const otherInfo = words(`
    id db_model base_model tier team_id access_groups blocked max_output_tokens max_tokens
    supports_function_calling health_check_model description ptu_count
  `);
  const parts = (names: readonly string[]): object => Object.fromEntries(names.map((name) => [name, 1]));
  const deployment = {
    model_name: 'a',
    litellm_params: { ...carriedParameters, ...parts(otherParameters), base_url: 'http://b.example' },
    model_info: { mode: 'chat', max_input_tokens: 9000, supports_vision: true, ...parts(otherInfo) },
    tpm: 1,
    rpm: 2,
    blocked: true,
  };

  it('names every key of a deployment without an equivalent in an engine file', async () => {
    const { notes, engines } = await run('litellm', { model_list: [deployment] });
    for (const key of [...otherParameters, 'blocked']) expect(isNamed(notes, 'a', key), key).toBe(true);
    for (const key of otherInfo) expect(isNamed(notes, 'a: model_info', key), key).toBe(true);
    expect(notes.filter((note) => /^a: [tr]pm: not imported; set limits for API keys/.test(note))).toHaveLength(2);
    expect(engines.get('a')).toMatchObject({
      taskType: 'vision',
      contextLength: 9000,
      kind: 'vllm',
      pricing: { inputPerMTokMicroUsd: 1_000_000n, cachedInputPerMTokMicroUsd: 500_000n },
      driver: { deployments: [{ url: 'http://gpu.example:8000', upstreamModel: 'acme/chat', apiKeyEnv: 'HOUSE_KEY' }] },
    });
  });

  it("names limits beside a deployment's parameters, and only there", async () => {
    const entry = { model_name: 'a', litellm_params: carriedParameters, tpm: 10 };
    const { notes } = await run('litellm', { model_list: [entry] });
    expect(notes).toContain('a: tpm: not imported; set limits for API keys instead (headgate keys edit)');
  });

  it('names every key of the configuration with its subkeys, without values', async () => {
    const whole = {
      general_settings: { master_key: secret, database_url: secret, alerting: ['slack'] },
      router_settings: { routing_strategy: 'least-busy', model_group_alias: { x: 'a' } },
      litellm_settings: { drop_params: true, cache: true, cache_params: { type: 'redis', password: secret } },
      environment_variables: { OTHER_KEY: secret },
      credential_list: [{ credential_name: 'mine', credential_values: { api_key: secret } }],
      callback_settings: { otel: { message_logging: true } },
      guardrails: [{ guardrail_name: 'pii', litellm_params: { guardrail: 'presidio', api_key: secret } }],
      finetune_settings: [{ custom_llm_provider: 'openai', api_key: secret }],
      files_settings: [{ custom_llm_provider: 'openai', api_key: secret }],
      assistant_settings: { custom_llm_provider: 'openai' },
      default_vertex_config: { vertex_project: 'p' },
      mcp_servers: { github: { url: 'https://x' } },
      mcp_tools: [{ name: 'tool' }],
      vector_store_registry: [{ vector_store_name: 'docs' }],
      prompts: [{ prompt_id: 'greeting' }],
      search_tools: [{ search_tool_name: 'web' }],
      policies: { strict: {} },
      policy_attachments: [{ policy: 'strict' }],
      worker_registry: [{ worker_id: 'w1' }],
      include: ['other.yaml'],
      of_tomorrow: { inner: secret },
    };
    const { notes, everything } = await run('litellm', { model_list: [deployment], ...whole });
    for (const key of Object.keys(whole)) expect(isNamed(notes, '-', key), key).toBe(true);
    const inner = ['master_key', 'alerting', 'routing_strategy', 'cache_params', 'OTHER_KEY', 'mine', 'otel', 'pii'];
    for (const key of [...inner, 'github', 'tool', 'docs', 'greeting', 'web', 'w1', 'vertex_project', 'inner']) {
      expect(isNamed(notes, '-', key), key).toBe(true);
    }
    expect(everything).not.toContain(secret);
  });

  it('imports values from a YAML anchor', async () => {
    const text = [
      'x-common: &common {api_base: "http://gpu.example", rpm: 5}',
      'model_list:',
      '  - model_name: a',
      '    litellm_params:',
      '      <<: *common',
      '      model: openai/a',
    ].join('\n');
    const { engines, notes } = await importInto(folders(), 'litellm', text);
    expect(engines.get('a')).toMatchObject({ driver: { deployments: [{ url: 'http://gpu.example' }] } });
    expect(notes).toContain('a: rpm: not imported; set limits for API keys instead (headgate keys edit)');
    expect(isNamed(notes, '-', 'x-common')).toBe(true);
  });
});
