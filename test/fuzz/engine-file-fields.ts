import fc from 'fast-check';
import { pickOf } from './pick.ts';

/** Fields of engine files, of hosts.yaml and of other programs' configurations, as somebody may well write them. */

/** In the clear they must be in no message and in no file; by their form they can be told to be secrets. */
export const secrets = { HF_TOKEN: 'hf_FuzzFuzzFuzzFuzzFuzz01', OPENAI_API_KEY: 'sk-FuzzFuzzFuzzFuzzFuzz02' } as const;

const maybe = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(arbitrary, { nil: undefined, freq: 2 });

/** A record without the fields that are not there. */
function fields(model: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<Record<string, unknown>> {
  return fc
    .record(model)
    .map((record) => Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined)));
}

const names = fc.constantFrom('chat', 'Chat', 'team/odd', 'a:b.c_d-e', '0', '_x', 'The chat', 'é 🦙');
const ids = fc.constantFrom('chat', 'embed', 'team/odd', 'a:b.c_d-e', '0', '_x');
const whole = (max: number): fc.Arbitrary<number> => fc.oneof(fc.constantFrom(1, 2, max), fc.nat(max));
const price = fc.constantFrom<unknown>(
  '0',
  '0.1',
  0.1,
  1e-6,
  0.0000001,
  999_999_999,
  '999999999.999999',
  1_000_000_000,
);

const folders = pickOf(
  ['/', '//', '/srv/models', '/srv/models/', '/srv/../etc', '/var/run/docker.sock', '/run', '/run/media/disk'],
  ['/var', '/var/lib', '/var/lib/docker/volumes', '/proc', '/proc/1/root', '/sys', '/dev', '/dev/shm', '/dev/mem'],
  ['/etc', '/etc/ssl/certs', '/root', '/root/.cache', '/home', '/home/a', '/home/a/models', '/boot', '/usr/lib'],
  ['/srv/x.sock', '/srv//models', '/./etc', '/srv/models/.', '/VAR/RUN', '/mnt/disk 1', '/tmp', '\\\\pipe\\docker'],
);
const volume = fc
  .tuple(
    fc.oneof(folders, fc.constantFrom('hf-cache', 'a', '..', 'x/y', '${HOME}', './models', '~')),
    fc.constantFrom('/models', '/root/.cache', '/', '/models/', '', 'models', '/a\0b', '/etc'),
    fc.constantFrom('', ':ro', ':rw', ':z', ':ro,z', ':'),
  )
  .map(([source, target, mode]) => `${source}:${target}${mode}`);

const serverWords = pickOf(
  ['--max-model-len', '8192', '--port', '--port=8000', '{port}', '--uds', '{socket}', '--served-model-name', 'chat'],
  ['--api-key', '--privileged', '--cap-add=ALL', '--pid=host', '--net', 'host', '-tp', '-tp=2', '--model', 'acme/x'],
  ['--tensor-parallel-size', '2', '-dp', '0', '--pipeline-parallel-size=x', '--a b', '', '--', '-', '=', '--=x'],
  ['serve', 'vllm', secrets.HF_TOKEN, '${HF_TOKEN}', '${PORT}', '--no-enable-sleep-mode', '--config', 'a\0b'],
);

const dockerOptions = pickOf<readonly string[]>(
  [['--rm'], ['-it'], ['--gpus', 'all'], ['--gpus', '"device=0,1"'], ['-p', '8000:8000'], ['--shm-size=16g']],
  [['--privileged'], ['--privileged=true'], ['--pid', 'host'], ['--ipc=host'], ['--net=host'], ['--cap-add', 'ALL']],
  [['-v', '/var/run/docker.sock:/s'], ['-v/:/host'], ['--volume=/srv/m:/m:ro'], ['-v', 'hf:/root/.cache']],
  [['--mount', 'type=bind,src=/,dst=/x'], ['--mount=type=volume,src=a,dst=/b'], ['-e', `T=${secrets.HF_TOKEN}`]],
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
const images = pickOf(
  ['vllm/vllm-openai:v0.29.0', 'vllm/vllm-openai', 'vllm/vllm-openai:latest', 'ghcr.io/a/b:1', 'localhost:5000/x:1'],
  [`a@sha256:${'0'.repeat(64)}`, '', ':', 'A/B:1', 'x:', 'a/../b:1', '-x:1', `${'a'.repeat(600)}:1`, 'a b:1'],
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
    fc.constantFrom(['vllm', 'serve', 'acme/x'], ['node', 'server.js'], ['/opt/llama-server', '-hf', 'a/b'], ['']),
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
      fc.constantFrom('HF_TOKEN', 'A', 'PATH', 'CUDA_VISIBLE_DEVICES', 'VLLM_API_KEY', 'X_SECRET', '1', 'a b', 'é'),
      fc.constantFrom('${HF_TOKEN}', '${NOT_SET}', secrets.HF_TOKEN, 'x', '', 'a${HF_TOKEN}b${', 'a\nb', 'a\0b'),
    ),
    { maxLength: 3, selector: ([name]) => name },
  )
  .map((pairs) => Object.fromEntries(pairs));

const common = {
  version: fc.constant(1),
  id: ids,
  name: names,
  hugging_face_id: fc.constantFrom('acme/chat', 'acme/x', 'chat', 'test/a', 'x'),
  task_type: fc.constantFrom('chat', 'completion', 'embedding', 'rerank', 'vision', 'code'),
  context_length: fc.constantFrom(1, 8192, 1_000_000_000),
  enabled: maybe(fc.boolean()),
  owned_by: maybe(names),
  pricing: maybe(
    fields({
      input_per_million: price,
      cached_input_per_million: price,
      output_per_million: price,
      flex_multiplier: maybe(fc.constantFrom<unknown>('0.5', 0.5, 1, '1.0', 0, '0.333333', 2)),
    }),
  ),
  kind: maybe(fc.constantFrom('vllm', 'openai')),
  allow: maybe(fc.subarray(['priority', 'regex', 'grammar', 'uuid', 'chat_template', 'best_of'])),
  media_domains: maybe(fc.subarray(['media.example.org', 'A.B', 'localhost', '1.2.3.4', 'x..y', '*'])),
  max_concurrent: maybe(whole(1_000_000)),
  max_n: maybe(whole(1024)),
  structured_outputs: maybe(fields({ max_choices: maybe(whole(1_000_000)), max_depth: maybe(whole(1000)) })),
  share_cache: maybe(fc.boolean()),
};
const times = {
  idle_seconds: maybe(whole(31_536_000)),
  start_timeout_seconds: maybe(whole(86_400)),
  min_up_seconds: maybe(fc.nat(86_400)),
  replicas: maybe(fields({ min: fc.nat(3), max: fc.integer({ min: 1, max: 3 }) })),
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
  url: pickOf(
    ['http://engine:8000', 'https://e.example.org/base/', 'http://[::1]:80', 'ftp://x', 'http://u:p@x', 'http://x/v1'],
    ['http:x', 'http://x?y', 'http://é.example', 'http://x:99999', 'HTTP://X', 'http://x/%zz', 'http://x/a b'],
  ),
  upstream_model: maybe(names),
  api_key_env: maybe(fc.constantFrom('HF_TOKEN', 'NOT_SET', 'a b')),
});
const canary = fields({
  route: fc.constantFrom('chat/completions', 'completions', 'embeddings'),
  body: fc.constantFrom<unknown>(
    {},
    { max_tokens: 2 },
    { messages: [{ role: 'user', content: 'x' }] },
    { stream: true },
  ),
  contains: maybe(fc.constant('x')),
});
const container = {
  image: fc.oneof({ weight: 3, arbitrary: fc.constant('vllm/vllm-openai:v0.29.0') }, { weight: 1, arbitrary: images }),
  args: maybe(fc.array(serverWords, { maxLength: 4 }).map((more) => ['acme/chat', ...more])),
  entrypoint: maybe(fc.array(serverWords, { minLength: 1, maxLength: 2 })),
  env: maybe(variables),
  gpus: maybe(fields({ count: fc.constantFrom(1, 2, 8, 64), memory_gib: maybe(fc.constantFrom(1, 79.5, 4096)) })),
  tensor_parallel_size: maybe(fc.constantFrom(1, 2, 8)),
  shm_size: maybe(fc.constantFrom('16gb', '1.5g', '1mb', '1kb', '999999999999tb', '0g', '16')),
  memory_limit: maybe(fc.constantFrom('64gb', '64 GiB', '1b')),
  volumes: maybe(fc.array(volume, { maxLength: 3 })),
  port: maybe(fc.constantFrom(1, 8000, 65_535)),
  ...times,
  pinned: maybe(fc.boolean()),
  sleep_level: maybe(fc.constantFrom(0, 1, 2)),
  canaries: maybe(fc.array(canary, { maxLength: 2 })),
};
const dockerFile = fields({
  ...common,
  driver: fc.constant('docker'),
  ...container,
  hosts: maybe(fc.subarray(['local', 'rack-1', 'h100', 'x y'])),
  placement: maybe(fc.constantFrom('pack', 'spread')),
});
const swarmFile = fields({
  ...common,
  driver: fc.constant('swarm'),
  ...container,
  constraints: maybe(fc.subarray(['node.labels.gpu==h100', 'node.role != manager', 'x', 'node.x==$(id)'])),
});

export const engineFile: fc.Arbitrary<unknown> = fc.oneof(processFile, externalFile, dockerFile, swarmFile);

const reach = {
  docker: pickOf(
    ['unix:///var/run/docker.sock', 'tcp://10.0.0.11:2376', 'tcp://10.0.0.11:2375', 'ssh://user@host', 'unix://x'],
    ['ssh://u:p@host', 'tcp://x', 'npipe:////./pipe/x', 'http://x', 'tcp://x:1/y?z'],
  ),
  tls: maybe(fields({ ca: fc.constant('/a'), cert: fc.constant('/b'), key: maybe(fc.constantFrom('/c', 'c')) })),
  ssh: maybe(fields({ key: fc.constant('/k'), host_key: fc.constant(`SHA256:${'A'.repeat(43)}`) })),
  same_machine: maybe(fc.boolean()),
};
export const hostsFile: fc.Arbitrary<unknown> = fields({
  hosts: maybe(
    fc.array(
      fields({
        name: fc.constantFrom('rack-1', 'local', 'h100'),
        ...reach,
        address: maybe(fc.constantFrom('10.0.0.11', '::1', '0.0.0.0', 'x', '999.0.0.1')),
        pools: maybe(fc.subarray(['h100', 'rack-1', 'a b'])),
        gpus: maybe(fc.constantFrom<unknown>('auto', [], [{ id: '0' }], [{ id: '0' }, { id: '0', memory_gib: 80 }])),
        gpu_access: maybe(fc.constantFrom('nvidia', 'cdi', 'environment')),
      }),
      { maxLength: 3 },
    ),
  ),
  swarm: maybe(fields({ ...reach, network: maybe(fc.constantFrom('overlay', 'host')) })),
});

const command = fc.oneof(
  words.map((list) => list.join(' ')),
  fc.constantFrom('', '"', "vllm serve 'a b' --port ${PORT}", '${macro} --port ${PORT}', 'x ${x} ${PORT} # c\n# d\ny'),
);
const llamaModel = fields({
  cmd: command,
  proxy: maybe(fc.constantFrom('http://127.0.0.1:${PORT}', 'http://127.0.0.1:9999', 'http://other/x', 'x')),
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
  ttl: maybe(fc.constantFrom(-1, 0, 0.5, 300, 1e9)),
  macros: maybe(fc.constant({ macro: 'vllm serve ${macro}', x: 1 })),
  metadata: maybe(fc.constant({ a: 1 })),
  capabilities: maybe(
    fc.constantFrom<unknown>({ in: ['text', 'image'] }, { reranker: true, context: 1.5 }, { context: -1 }),
  ),
});
export const llamaSwapFile: fc.Arbitrary<unknown> = fields({
  healthCheckTimeout: maybe(fc.constantFrom(0, 15, 0.1, 1e9)),
  globalTTL: maybe(fc.constantFrom(0, 60, -5)),
  macros: maybe(
    fc.constantFrom<unknown>(
      { macro: 'vllm serve acme/x' },
      { macro: '${macro}${macro}', x: '${macro}' },
      { macro: '${x}'.repeat(30), x: '${macro}'.repeat(30) },
    ),
  ),
  apiKeys: maybe(fc.constant([secrets.OPENAI_API_KEY])),
  models: fc.dictionary(names, llamaModel, { maxKeys: 3 }),
  groups: maybe(fc.constantFrom<unknown>({ g: { persistent: true, members: ['chat'] } }, { g: {} })),
  hooks: maybe(fc.constant({ on_startup: { preload: ['chat', 'nobody'] } })),
  peers: maybe(
    fc.dictionary(
      names,
      fields({
        proxy: fc.constantFrom('http://peer', 'https://peer/v1/', 'x'),
        apiKey: maybe(fc.constantFrom(secrets.OPENAI_API_KEY, '${env.PEER_KEY}', '')),
        models: fc.array(names, { maxLength: 2 }),
      }),
      { maxKeys: 2 },
    ),
  ),
});

const cost = fc.constantFrom<unknown>('1.5e-07', 1e-7, '0.00000015', 0, -1, '1e400', 'x', '1e99', 1e21, '+.5', '.');
export const litellmFile: fc.Arbitrary<unknown> = fields({
  model_list: fc.array(
    fields({
      model_name: names,
      litellm_params: fields({
        model: fc.constantFrom('openai/gpt', 'hosted_vllm/acme/x', 'groq/x', 'bedrock/x', '*', 'x', '/', 'openai/'),
        api_base: maybe(fc.constantFrom('http://e:8000/v1', 'http://e', 'os.environ/BASE', 'x', 'http://u:p@e')),
        api_key: maybe(fc.constantFrom(secrets.OPENAI_API_KEY, 'os.environ/KEY', 'none', '', 'os.environ/a b')),
        input_cost_per_token: maybe(cost),
        output_cost_per_token: maybe(cost),
        rpm: maybe(fc.constant(5)),
      }),
      model_info: maybe(
        fields({ mode: maybe(fc.constantFrom('chat', 'embedding', 'rerank', 'x')), max_tokens: maybe(whole(9000)) }),
      ),
      tpm: maybe(fc.constant(1)),
    }),
    { maxLength: 3 },
  ),
  general_settings: maybe(fc.constant({ master_key: secrets.OPENAI_API_KEY })),
  guardrails: maybe(fc.constant([{ guardrail_name: 'a' }])),
});
