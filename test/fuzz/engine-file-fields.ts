import fc from 'fast-check';
import { mostly, pick, pickOf } from './pick.ts';

/** Fields of engine files, of hosts.yaml and of other programs' configurations, as somebody may well write them. */

/** Secrets: in the clear they must be in no message and in no file; by their form they can be found to be secrets. */
export const secrets = { HF_TOKEN: 'hf_FuzzFuzzFuzzFuzzFuzz01', OPENAI_API_KEY: 'sk-FuzzFuzzFuzzFuzzFuzz02' } as const;

const maybe = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.oneof({ weight: 2, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary });

/** A record without the fields that are not there. */
function fields(model: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<Record<string, unknown>> {
  return fc
    .record(model)
    .map((record) => Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined)));
}

const names = pick('chat', 'Chat', 'team/odd', 'a:b.c_d-e', '0', '_x', 'The chat', 'é 🦙');
const ids = pick('chat', 'embed', 'team/odd', 'a:b.c_d-e', '0', '_x');
const whole = (max: number): fc.Arbitrary<number> => fc.oneof(pick(1, 2, max), fc.nat(max));
const price = mostly(
  pick<unknown>('0', '0.1', 0.1, 0.000_001, 999_999_999, '999999999.999999'),
  pick<unknown>(1e-6, 0.0000001, 1_000_000_000, -1),
  12,
);

const folders = pickOf(
  ['/', '//', '/srv/../etc', '/var/run/docker.sock', '/run', '/var', '/var/lib', '/var/lib/docker/volumes', '/proc'],
  ['/proc/1/root', '/sys', '/dev', '/dev/mem', '/etc', '/root', '/home', '/home/a', '/boot', '/srv/x.sock', '/./etc'],
  ['/srv//models', '/srv/models/.', '/usr/lib', '/run/', '/var/run/', '/etc//', '/..', '/var/../run', '/home/../root/'],
  ['..', 'x/y', '${HOME}', './models', '~', '', '\\\\pipe\\docker', '/a\0b', '/run/docker.socket'],
);
const goodFolders = pickOf(
  ['hf-cache', '/srv/models', '/srv/models/', '/dev/shm', '/run/media/disk', '/etc/ssl/certs', '/root/.cache', '/tmp'],
  ['/home/a/models', '/mnt/disk 1', '/VAR/RUN', '/usr/share/models', '/etc/x', '/srv/é'],
);
const volume = fc
  .tuple(
    mostly(goodFolders, folders, 4),
    mostly(pick('/models', '/root/.cache', '/models/', '/etc'), pick('/', '', 'models', '/a\0b'), 12),
    mostly(pick('', ':ro', ':rw'), pick(':z', ':ro,z', ':'), 12),
  )
  .map(([source, target, mode]) => `${source}:${target}${mode}`);

const serverWords = mostly(
  pickOf(
    ['--max-model-len', '8192', 'chat', '--', '', '-x', '--enforce-eager', '${HF_TOKEN}', 'a b', '{"a": 1}', 'é'],
    ['--dtype=auto', '--seed', '0', '=', '-'],
  ),
  pickOf(
    ['--port', '--port=8000', '{port}', '--uds', '{socket}', '--served-model-name', '--api-key', '--privileged'],
    ['--cap-add=ALL', '--pid=host', '--net', 'host', '-tp', '-tp=2', '--model', 'acme/x', '--tensor-parallel-size'],
    ['2', '-dp', '--pipeline-parallel-size=x', '--a b', '--=x', 'serve', 'vllm', secrets.HF_TOKEN, '${PORT}'],
    ['--no-enable-sleep-mode', '--config', 'a\0b', '--privileged=false', '--security_opt=x', '--volumes-from=x'],
  ),
  6,
);

const dockerOptions = pickOf<readonly string[]>(
  [['--rm'], ['-it'], ['--gpus', 'all'], ['--gpus', '"device=0,1"'], ['-p', '8000:8000'], ['--shm-size=16g']],
  [['--privileged'], ['--privileged=true'], ['--pid', 'host'], ['--ipc=host'], ['--net=host'], ['--cap-add', 'ALL']],
  [['-v', '/var/run/docker.sock:/s'], ['-v/:/host'], ['--volume=/srv/m:/m:ro'], ['-v', 'hf:/root/.cache']],
  [['--mount', 'type=bind,src=/,dst=/x'], ['--mount=type=volume,src=a,dst=/b'], ['-e', `T=${secrets.HF_TOKEN}`]],
  [['--api-key', secrets.OPENAI_API_KEY], [`--token=${secrets.HF_TOKEN}`], ['--network', 'x'.repeat(3000)]],
  [['-e', 'HF_TOKEN'], ['--env-file=x'], ['--device', '/dev/sda'], ['--security-opt=apparmor=unconfined'], ['-']],
  [
    ['--entrypoint', ''],
    ['--memory=64g'],
    ['--memory', 'x'],
    ['--user'],
    ['--runtime=nvidia'],
    ['--volumes-from', 'x'],
  ],
);
const images = mostly(
  pick('vllm/vllm-openai:v0.32.0', 'ghcr.io/a/b:1', 'localhost:5000/x:1', `a@sha256:${'0'.repeat(64)}`),
  pickOf(
    ['vllm/vllm-openai', 'vllm/vllm-openai:latest', '', ':', 'A/B:1', 'x:', 'a/../b:1', '-x:1', 'a b:1'],
    [`${'a'.repeat(600)}:1`, '--privileged:1', 'a:1\n'],
  ),
  10,
);
const dockerRun = fc
  .tuple(
    pickOf(
      ['docker run', 'sudo docker run', 'docker container run', 'podman run', '/usr/bin/docker --debug run'],
      ['env A=1 docker run', 'docker', 'docker run --', 'docker compose run', 'nerdctl create'],
    ),
    fc.array(dockerOptions, { maxLength: 4 }),
    images,
    fc.array(serverWords, { maxLength: 4 }),
  )
  .map(([run, given, image, args]) => [...run.split(' '), ...given.flat(), image, ...args]);

const program = fc
  .tuple(
    pick(['vllm', 'serve', 'acme/x'], ['node', 'server.js'], ['/opt/llama-server', '-hf', 'a/b'], ['']),
    fc.array(serverWords, { maxLength: 5 }),
  )
  .map(([start, more]) => [...start, ...more]);
const words = fc.oneof(
  { weight: 2, arbitrary: fc.array(serverWords, { maxLength: 3 }).map((more) => ['server', '{port}', ...more]) },
  { weight: 2, arbitrary: program },
  { weight: 2, arbitrary: dockerRun },
  { weight: 1, arbitrary: dockerRun.map((run) => ['sh', '-c', run.join(' ')]) },
);

const variables = fc
  .uniqueArray(
    fc.tuple(
      mostly(
        pick('HF_TOKEN', 'A', 'PATH'),
        pick('CUDA_VISIBLE_DEVICES', 'VLLM_API_KEY', 'X_SECRET', '1', 'a b', 'é'),
        8,
      ),
      mostly(pick('${HF_TOKEN}', '', 'a${HF_TOKEN}b${'), pick('${NOT_SET}', secrets.HF_TOKEN, 'x', 'a\nb', 'a\0b'), 8),
    ),
    { maxLength: 3, selector: ([name]) => name },
  )
  .map((pairs) => Object.fromEntries(pairs));

const common = {
  version: fc.constant(1),
  id: ids,
  name: names,
  hugging_face_id: pick('acme/chat', 'acme/x', 'chat', 'test/a', 'x'),
  task_type: pick('chat', 'completion', 'embedding', 'rerank', 'vision', 'code'),
  context_length: pick(1, 8192, 1_000_000_000),
  enabled: maybe(fc.boolean()),
  owned_by: maybe(names),
  pricing: maybe(
    fields({
      input_per_million: price,
      cached_input_per_million: price,
      output_per_million: price,
      flex_multiplier: maybe(mostly(pick<unknown>('0.5', 0.5, 1, '1.0', 0, '0.333333'), pick<unknown>(2, '.5'), 8)),
    }),
  ),
  kind: maybe(pick('vllm', 'openai')),
  allow: maybe(fc.subarray(['priority', 'regex', 'grammar', 'uuid', 'chat_template', 'best_of'])),
  media_domains: maybe(
    mostly(fc.subarray(['media.example.org', 'A.B', 'localhost', '1.2.3.4']), pick(['x..y'], ['*']), 8),
  ),
  max_concurrent: maybe(whole(1_000_000)),
  max_n: maybe(whole(1024)),
  structured_outputs: maybe(fields({ max_choices: maybe(whole(1_000_000)), max_depth: maybe(whole(1000)) })),
  share_cache: maybe(fc.boolean()),
  tools: maybe(fields({ unserved: maybe(mostly(pick('drop', 'reject'), pick('ignore', ''), 6)) })),
  fallbacks: maybe(fc.array(names, { maxLength: 9 })),
};
const times = {
  idle_seconds: maybe(whole(31_536_000)),
  start_timeout_seconds: maybe(whole(86_400)),
  min_up_seconds: maybe(fc.nat(86_400)),
  replicas: maybe(fields({ min: fc.nat(1), max: pick(1, 2, 3) })),
};
const processFile = fields({
  ...common,
  driver: fc.constant('process'),
  command: words,
  env: maybe(variables),
  ...times,
});
const externalFile = fields({
  ...common,
  driver: fc.constant('external'),
  url: mostly(
    pick(
      'http://engine:8000',
      'https://e.example.org/base/',
      'http://[::1]:80',
      'http://é.example',
      'HTTP://X',
      'http:x',
    ),
    pickOf(
      ['ftp://x', 'http://u:p@x', 'http://x/v1', 'http://x?y', 'http://x:99999', 'http://x/%zz', 'http://x/a b'],
      ['http://x/v1/', 'http://x/v1//', 'http://u@x', 'http://x#', 'http://x\ny', ' http://x', 'http://x/\u0000'],
    ),
    5,
  ),
  upstream_model: maybe(names),
  api_key_env: maybe(mostly(fc.constant('HF_TOKEN'), pick('NOT_SET', 'a b'), 6)),
});
const canary = fields({
  route: pick('chat/completions', 'completions', 'embeddings'),
  body: pick<unknown>({}, { max_tokens: 2 }, { messages: [{ role: 'user', content: 'x' }] }, { stream: true }),
  contains: maybe(fc.constant('x')),
});
const container = {
  image: images,
  args: maybe(fc.array(serverWords, { maxLength: 4 }).map((more) => ['acme/chat', ...more])),
  entrypoint: maybe(fc.array(serverWords, { minLength: 1, maxLength: 2 })),
  env: maybe(variables),
  gpus: maybe(fields({ count: pick(1, 2, 8, 64), memory_gib: maybe(pick(1, 79.5, 4096)) })),
  tensor_parallel_size: maybe(pick(1, 2, 8)),
  shm_size: maybe(mostly(pick('16gb', '1.5g', '1mb', '999999999999tb'), pick('1kb', '0g', '16', 'xgb'), 8)),
  memory_limit: maybe(mostly(pick('64gb', '64 GiB'), fc.constant('1b'), 8)),
  volumes: maybe(fc.array(volume, { maxLength: 3 })),
  port: maybe(pick(1, 8000, 65_535)),
  ...times,
  pinned: maybe(fc.boolean()),
  sleep_level: maybe(pick(0, 1, 2)),
  canaries: maybe(fc.array(canary, { maxLength: 2 })),
};
const dockerFile = fields({
  ...common,
  driver: fc.constant('docker'),
  ...container,
  hosts: maybe(mostly(fc.constant<string[]>(['local']), fc.subarray(['rack-1', 'h100', 'x y']), 6)),
  placement: maybe(pick('pack', 'spread')),
});
const swarmFile = fields({
  ...common,
  driver: fc.constant('swarm'),
  ...container,
  constraints: maybe(
    mostly(fc.subarray(['node.labels.gpu==h100', 'node.role != manager', 'node.x==$(id)']), pick(['x'], ['']), 8),
  ),
});

export const engineFile: fc.Arbitrary<unknown> = fc.oneof(processFile, externalFile, dockerFile, swarmFile);

const reach = {
  docker: pickOf(
    ['unix:///var/run/docker.sock', 'tcp://10.0.0.11:2376', 'tcp://10.0.0.11:2375', 'ssh://user@host', 'unix://x'],
    ['ssh://u:p@host', 'tcp://x', 'npipe:////./pipe/x', 'http://x', 'tcp://x:1/y?z'],
  ),
  tls: maybe(fields({ ca: fc.constant('/a'), cert: fc.constant('/b'), key: maybe(pick('/c', 'c')) })),
  ssh: maybe(fields({ key: fc.constant('/k'), host_key: fc.constant(`SHA256:${'A'.repeat(43)}`) })),
  same_machine: maybe(fc.boolean()),
};
export const hostsFile: fc.Arbitrary<unknown> = fields({
  hosts: maybe(
    fc.array(
      fields({
        name: pick('rack-1', 'local', 'h100'),
        ...reach,
        address: maybe(pick('10.0.0.11', '::1', '0.0.0.0', 'x', '999.0.0.1')),
        pools: maybe(fc.subarray(['h100', 'rack-1', 'a b'])),
        gpus: maybe(pick<unknown>('auto', [], [{ id: '0' }], [{ id: '0' }, { id: '0', memory_gib: 80 }])),
        gpu_access: maybe(pick('nvidia', 'cdi', 'environment', 'rocm')),
      }),
      { maxLength: 3 },
    ),
  ),
  swarm: maybe(fields({ ...reach, network: maybe(pick('overlay', 'host')) })),
});

const command = fc.oneof(
  words.map((list) => list.join(' ')),
  pick('', '"', "vllm serve 'a b' --port ${PORT}", '${macro} --port ${PORT}', 'x ${x} ${PORT} # c\n# d\ny'),
);
const llamaModel = fields({
  cmd: command,
  proxy: maybe(pick('http://127.0.0.1:${PORT}', 'http://127.0.0.1:9999', 'http://other/x', 'x')),
  name: maybe(names),
  aliases: maybe(fc.array(names, { maxLength: 2 })),
  env: maybe(
    fc.subarray([
      'A=1',
      `HF_TOKEN=${secrets.HF_TOKEN}`,
      'HF_TOKEN',
      'A=${env.HF_TOKEN}',
      '1=2',
      '=',
      'CUDA_VISIBLE_DEVICES=0',
    ]),
  ),
  ttl: maybe(pick(-1, 0, 0.5, 300, 1e9)),
  macros: maybe(fc.constant({ macro: 'vllm serve ${macro}', x: 1 })),
  metadata: maybe(fc.constant({ a: 1 })),
  capabilities: maybe(pick<unknown>({ in: ['text', 'image'] }, { reranker: true, context: 1.5 }, { context: -1 })),
});
export const llamaSwapFile: fc.Arbitrary<unknown> = fields({
  healthCheckTimeout: maybe(pick(0, 15, 0.1, 1e9)),
  globalTTL: maybe(pick(0, 60, -5)),
  macros: maybe(
    pick<unknown>(
      { macro: 'vllm serve acme/x' },
      { macro: '${macro}${macro}', x: '${macro}' },
      { macro: '${x}'.repeat(30), x: '${macro}'.repeat(30) },
    ),
  ),
  apiKeys: maybe(fc.constant([secrets.OPENAI_API_KEY])),
  models: fc.dictionary(names, llamaModel, { maxKeys: 3 }),
  groups: maybe(pick<unknown>({ g: { persistent: true, members: ['chat'] } }, { g: {} })),
  hooks: maybe(fc.constant({ on_startup: { preload: ['chat', 'nobody'] } })),
  peers: maybe(
    fc.dictionary(
      names,
      fields({
        proxy: pick('http://peer', 'https://peer/v1/', 'x'),
        apiKey: maybe(pick(secrets.OPENAI_API_KEY, '${env.PEER_KEY}', '')),
        models: fc.array(names, { maxLength: 2 }),
      }),
      { maxKeys: 2 },
    ),
  ),
});

const cost = pick<unknown>('1.5e-07', 1e-7, '0.00000015', 0, -1, '1e400', 'x', '1e99', 1e21, '+.5', '.');
export const litellmFile: fc.Arbitrary<unknown> = fields({
  model_list: fc.array(
    fields({
      model_name: names,
      litellm_params: fields({
        model: pick('openai/gpt', 'hosted_vllm/acme/x', 'groq/x', 'bedrock/x', '*', 'x', '/', 'openai/'),
        api_base: maybe(pick('http://e:8000/v1', 'http://e', 'os.environ/BASE', 'x', 'http://u:p@e')),
        api_key: maybe(pick(secrets.OPENAI_API_KEY, 'os.environ/KEY', 'none', '', 'os.environ/a b')),
        input_cost_per_token: maybe(cost),
        output_cost_per_token: maybe(cost),
        rpm: maybe(fc.constant(5)),
      }),
      model_info: maybe(
        fields({ mode: maybe(pick('chat', 'embedding', 'rerank', 'x')), max_tokens: maybe(whole(9000)) }),
      ),
      tpm: maybe(fc.constant(1)),
    }),
    { maxLength: 3 },
  ),
  general_settings: maybe(fc.constant({ master_key: secrets.OPENAI_API_KEY })),
  guardrails: maybe(fc.constant([{ guardrail_name: 'a' }])),
});
