import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ContainerDriverSettings, formatEngineFileProblem, loadEngineFiles } from '#core/catalog/catalog.ts';

let root: string;
let folder: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'hg-containers-'));
  folder = join(root, 'engines');
  mkdirSync(folder);
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const head = `version: 1
id: chat
name: Chat
hugging_face_id: Acme/Chat
task_type: chat
context_length: 4096
`;
const image = 'image: vllm/vllm-openai:v0.32.0\n';

function load(text: string) {
  writeFileSync(join(folder, 'chat.yaml'), head + text);
  return loadEngineFiles(folder);
}

/** Problems of a docker engine's file that has these lines beside the usual ones, which are lines 1 to 9. */
function problems(lines: string, start = `driver: docker\n${image}args: [Acme/Chat]\n`): string[] {
  const result = load(start + lines);
  return result.ok ? [] : result.problems.map(formatEngineFileProblem);
}

function settings(lines: string, start = `driver: docker\n${image}args: [Acme/Chat]\n`): ContainerDriverSettings {
  const result = load(start + lines);
  if (!result.ok) throw new Error(result.problems.map(formatEngineFileProblem).join('\n'));
  const driver = result.engines[0]?.driver;
  if (driver?.type !== 'docker' && driver?.type !== 'swarm') throw new Error('not a container');
  return driver;
}

describe('container engine file validation', () => {
  it.each([
    ['vllm/vllm-openai', 'the version is missing'],
    ['vllm/vllm-openai:latest', 'the tag "latest" can change'],
    ['vllm/vllm-openai-cpu:latest-x86_64', 'the tag "latest-x86_64" can change'],
    ['vllm/vllm-openai:nightly', 'the tag "nightly" can change'],
    ['registry.example:5000/vllm', 'the version is missing'],
    ['vllm/VLLM:v1', 'expected an image such as'],
    ['two words:v1', 'expected an image such as'],
    ['vllm/vllm-openai@sha256:abc', 'expected an image such as'],
  ])('rejects the image %s, which is not pinned', (name, why) => {
    expect(problems('', `driver: docker\nimage: ${name}\nargs: [Acme/Chat]\n`)).toEqual([
      expect.stringContaining(`engines/chat.yaml:8: image: ${why}`),
    ]);
  });

  it.each([
    ['--served-model-name', 'remove it'],
    ['--api-key', 'creates a key for each replica'],
    ['--host', 'remove it'],
    ['--port=9000', 'the field port'],
    ['--uds', 'remove it'],
    ['--enable_force_include_usage', 'Headgate adds it'],
    ['--no-enable-force-include-usage', 'bills by the usage'],
    ['--disable-log-stats', 'routes by the statistics'],
    ['--ssl-keyfile', 'plain HTTP'],
    ['--shutdown-timeout', 'drain_seconds'],
    ['--hf-token', 'by reference under env'],
    ['--config', 'put the options of that file here'],
    ['--conf', 'put the options of that file here'],
    ['--tokens-only', 'no route for text'],
    ['--skip_tokenizer_init', 'accepts no text'],
    ['--middleware=acme.Log', 'could change what is billed'],
    ['--grpc', 'Headgate uses HTTP'],
    ['--headless', 'needs the API server'],
    ['--nnodes', 'raise replicas.max to run more'],
    ['-n=2', 'raise replicas.max to run more'],
    ['--master_addr=10.0.0.1', 'raise replicas.max to run more'],
    ['--data-parallel-external-lb', '--data-parallel-size is allowed'],
    ['--ssl-ca-certs', 'plain HTTP'],
    ['--lora-modules', 'list the adapters under lora'],
  ])('rejects the vLLM argument %s', (flag, why) => {
    const [problem, ...others] = problems('', `driver: docker\n${image}args:\n  - Acme/Chat\n  - ${flag}\n  - x\n`);
    expect(problem).toMatch(/^engines\/chat\.yaml:11: args\[1\]: -/);
    expect(problem).toContain(why);
    expect(others).toEqual([]);
  });

  it('rejects args that do not begin with the model', () => {
    const args = (text: string) => problems('', `driver: docker\n${image}args: [${text}]\n`);
    expect(args('')).toEqual([expect.stringContaining(':9: args: the model is missing: put Acme/Chat first')]);
    expect(args('serve, Acme/Chat')).toEqual([expect.stringContaining('args[0]: the image already runs "vllm serve"')]);
    expect(args('--enforce-eager')).toEqual([expect.stringContaining('args[0]: the model is missing')]);
    expect(args('Acme/Chat, --max-model-len 4096')).toEqual([
      expect.stringContaining('args[1]: two words in one item: write --max-model-len and its value'),
    ]);
    expect(args('Acme/Chat, --max-model-len, 4096')).toEqual([
      expect.stringContaining('args[2]: expected text: put the value in quotes'),
    ]);
  });

  it.each([
    ['"--max-num-seqs 8"', 'two words in one item: write --max-num-seqs and its value'],
    ['" --max-num-seqs 8"', 'two words in one item: write --max-num-seqs'],
    ['"--max-num-seqs=8 --enforce-eager"', 'two words in one item: write --max-num-seqs=8'],
    ['"--max-num-seqs 8 --enforce-eager"', '3 words in one item: write each word as a separate item'],
    ['"--max-num-seqs\\n8"', 'two words in one item'],
    ['--dtype, "bfloat16 --enforce-eager"', 'two words in one item'],
    ['"--enforce-eager "', 'remove the white space around --enforce-eager'],
  ])('rejects several words in one item: %s', (words, why) => {
    const [problem, ...others] = problems('', `driver: docker\n${image}args: [Acme/Chat, ${words}]\n`);
    expect(problem).toContain(why);
    expect(others).toEqual([]);
  });

  it.each([
    ['2048', 'is below context_length 4096: the engine would reject requests that Headgate accepts; set 4096 or more'],
    ['4k', 'is below context_length 4096'],
    ['auto', 'may result in less than context_length; set 4096 or more, or remove it'],
    ['-1', 'may result in less than context_length'],
    ['', 'may result in less than context_length'],
  ])('rejects --max-model-len %s below context_length', (length, why) => {
    expect(problems('', `driver: docker\n${image}args: [Acme/Chat, --max-model-len, "${length}"]\n`)).toEqual([
      expect.stringContaining(why),
    ]);
  });

  it.each([
    ['args: [Acme/Chat, --tensor-parallel-size, "2"]\n', 'args[1]'],
    ['args: [Acme/Chat, -pp=2]\n', 'args'],
    ['args: [Acme/Chat]\ntensor_parallel_size: 2\n', 'tensor_parallel_size'],
    ['args: [Acme/Chat, -pcp, "2"]\n', 'args'],
  ])('rejects several GPUs in parallel sizes without gpus: %s', (lines, place) => {
    expect(problems('', `driver: docker\n${image}${lines}`)).toEqual([
      expect.stringContaining(
        `${place}: the parallel sizes need 2 GPUs, but the file has no gpus: add gpus with count: 2`,
      ),
    ]);
    const onCpu = image.replace('vllm-openai', 'vllm-openai-cpu');
    expect(problems('', `driver: docker\n${onCpu}${lines}`)).toEqual([]);
  });

  it('rejects a model or an adapter in a folder that no volume mounts', () => {
    const lines = 'lora: [{id: helper, path: /adapters/helper}]\n';
    const unmounted = problems(lines, `driver: docker\n${image}args: [/models/chat]\n`);
    expect(unmounted).toEqual([
      expect.stringContaining('args[0]: /models/chat is not in a volume of this engine'),
      expect.stringContaining('lora[0].path: /adapters/helper is not in a volume'),
    ]);
    const volumes = 'volumes: ["/srv/models:/models:ro", "adapters:/adapters/helper"]\n';
    expect(problems(lines + volumes, `driver: docker\n${image}args: [/models/chat]\n`)).toEqual([]);
    const own = image.replace('vllm/vllm-openai', 'acme/vllm-with-weights');
    expect(problems(lines, `driver: docker\n${own}args: [/models/chat]\n`)).toEqual([]);
  });

  it.each([
    ['tensor_parallel_size: 4\ngpus: {count: 2}\n', ':10: tensor_parallel_size: the parallel sizes multiply to 4'],
    ['shm_size: 16\n', ':10: shm_size: expected a size'],
    ['shm_size: 16kb\n', ':10: shm_size: must be at least 1mb'],
    ['ulimits: {nofile: 9}\n', ':10: ulimits.nofile: unknown field'],
    ['cpuset_cpus: all\n', ':10: cpuset_cpus: expected numbers and ranges such as 0-15,32-47'],
    ['ulimits: {memlock: -2}\n', ':10: ulimits.memlock: '],
    ['memory_limit: lots\n', ':10: memory_limit: expected a size'],
    ['gpus: {count: 0}\n', ':10: gpus.count: must be at least 1'],
    ['gpus: {count: 1, memory: 80}\n', ':10: gpus.memory: unknown field'],
    ['volumes: ["~/hf:/root"]\n', ':10: volumes[0]: expected name:/target'],
    ['volumes: ["a1:/x", "/b:/x/:ro"]\n', ':10: volumes[1]: /x is already mounted'],
    ['volumes: ["data:relative"]\n', ':10: volumes[0]: expected name:/target'],
    ['volumes: ["/var/run/docker.sock:/var/run/docker.sock"]\n', ':10: volumes[0]: /var/run/docker.sock is a socket'],
    ['volumes: ["/var/run/docker.sock:/x:ro"]\n', ':10: volumes[0]: /var/run/docker.sock is a socket'],
    ['volumes: ["/run/user/1000/podman/podman.sock:/x"]\n', ':10: volumes[0]: /run/user/1000/podman/podman.sock is a'],
    ['volumes: ["/run:/run"]\n', ':10: volumes[0]: /run gives control over the machine'],
    ['volumes: ["/:/host:ro"]\n', ':10: volumes[0]: / gives control over the machine'],
    ['volumes: ["/srv/../etc:/x"]\n', ':10: volumes[0]: expected an absolute path without'],
    ['volumes: ["/etc/ssl/certs:/etc/ssl/certs"]\n', ':10: volumes[0]: /etc/ssl/certs is a system folder'],
    ['privileged: true\n', ':10: privileged: unknown field'],
    ['devices: [/dev/sda]\n', ':10: devices: unknown field'],
    ['cap_add: [SYS_ADMIN]\n', ':10: cap_add: unknown field'],
    ['port: 70000\n', ':10: port: must be at most 65535'],
    ['hosts: ["gpu 1"]\n', ':10: hosts[0]: expected the name of a host or a pool'],
    ['constraints: [node.role==worker]\n', ':10: constraints: unknown field'],
    ['placement: anywhere\n', ':10: placement: expected "pack" or "spread"'],
    ['replicas: {min: 3, max: 2}\n', ':10: replicas.max: must be at least replicas.min'],
    ['sleep_level: 3\n', ':10: sleep_level: expected 0 or 1 or 2'],
    ['sleep_level: 1\n', ':10: sleep_level: requires gpus'],
    [
      'canaries: [{route: embeddings, body: {input: a}}]\n',
      ':10: canaries[0].route: this route does not serve chat models',
    ],
    [
      'canaries: [{route: completions, body: {prompt: a, model: b}}]\n',
      ':10: canaries[0].body.model: remove it; Headgate sets',
    ],
    ['env: {VLLM_API_KEY: "${A}"}\n', ':10: env.VLLM_API_KEY: remove it'],
    ['env: {CUDA_VISIBLE_DEVICES: "0"}\n', ':10: env.CUDA_VISIBLE_DEVICES: remove it'],
    ['env: {VLLM_USE_RUST_FRONTEND: "1"}\n', ':10: env.VLLM_USE_RUST_FRONTEND: remove it; this front end'],
  ])('rejects %s', (lines, why) => {
    expect(problems(lines)).toEqual([expect.stringContaining(`engines/chat.yaml${why}`)]);
  });

  it.each([
    ['--privileged'],
    ['--privileged=true'],
    ['--cap-add=SYS_ADMIN'],
    ['--cap-add, SYS_ADMIN'],
    ['--security-opt, seccomp=unconfined'],
    ['--pid=host'],
    ['--network, host'],
    ['--ipc=host'],
    ['--volumes-from, shop'],
  ])('rejects %s in args, which is an option of docker run', (words) => {
    for (const kind of ['vllm', 'openai']) {
      const found = problems(`kind: ${kind}\n`, `driver: docker\n${image}args: [Acme/Chat, ${words}]\n`);
      expect(found).toContainEqual(expect.stringMatching(/:9: args\[1\]: --[a-z-]+ is an option of docker run/));
    }
  });

  it('rejects NVIDIA_VISIBLE_DEVICES in env, also for kind openai', () => {
    const [problem] = problems('kind: openai\nenv: {NVIDIA_VISIBLE_DEVICES: all}\n');
    expect(problem).toContain('env.NVIDIA_VISIBLE_DEVICES: remove it');
  });

  it('rejects parallel sizes that do not match gpus.count, in any spelling', () => {
    const args = (text: string, count: number) =>
      problems(`gpus: {count: ${count}}\n`, `driver: docker\n${image}args: [Acme/Chat, ${text}]\n`);
    expect(args('"-tp", "4"', 2)).toEqual([expect.stringContaining('args[1]: the parallel sizes multiply to 4')]);
    expect(args('--tensor-parallel-size=two', 2)).toEqual([expect.stringContaining('args[1]')]);
    expect(args('"-pp=2"', 3)).toEqual([expect.stringContaining('gpus.count: 3 is not divisible')]);
    expect(args('"-tp", "2", --pipeline_parallel_size, "2"', 4)).toEqual([]);
  });

  it('rejects a secret in clear text without repeating it', () => {
    const secret = 'hf_abcdefghijklmnopqrstuvwx';
    for (const [lines, field] of [
      [`env:\n  HF_TOKEN: ${secret}\n`, ':11: env.HF_TOKEN'],
      ['env:\n  MY_SERVICE_PASSWORD: hunter2\n', ':11: env.MY_SERVICE_PASSWORD'],
      ['env:\n  AWS_ACCESS_KEY_ID: someone\n', ':11: env.AWS_ACCESS_KEY_ID'],
      [`env:\n  PLAIN: "Bearer ${secret}"\n`, ':11: env.PLAIN'],
    ] as const) {
      const [problem, ...others] = problems(lines);
      expect(problem, lines).toContain(`engines/chat.yaml${field}: secrets are not allowed here`);
      expect(problem).not.toMatch(/hf_abc|hunter2|someone/);
      expect(others).toEqual([]);
    }
    expect(problems('', `driver: docker\n${image}args: [Acme/Chat, --some-option, ${secret}]\n`)).toEqual([
      expect.stringContaining('args[2]: secrets are not allowed here'),
    ]);
    expect(problems('', `driver: process\ncommand: [vllm, serve, m]\nenv: {HF_TOKEN: ${secret}}\n`)).toEqual([
      expect.stringContaining('env.HF_TOKEN: secrets are not allowed here'),
    ]);
    expect(problems('env: {TOKENIZERS_PARALLELISM: "false", HF_TOKEN: "${HF_TOKEN}", HF_TOKEN_PATH: /t}\n')).toEqual(
      [],
    );
  });

  it('rejects a host or pool that hosts.yaml does not have', () => {
    expect(problems('hosts: [local, gpu-9]\n')).toEqual([
      'engines/chat.yaml:10: hosts[1]: hosts.yaml has no host or pool "gpu-9"; use one of local',
    ]);
    writeFileSync(
      join(folder, 'hosts.yaml'),
      'hosts:\n  - {name: gpu-1, docker: "unix:///run/docker.sock", pools: [h100]}\n',
    );
    expect(problems('hosts: [gpu-1, h100]\n')).toEqual([]);
    expect(problems('hosts: [local]\n')).toEqual([expect.stringContaining('"local"; use one of gpu-1, h100')]);
  });

  it('rejects tensor_parallel_size for an image that is not vLLM', () => {
    const start = 'driver: docker\nimage: ghcr.io/acme/server:v1\n';
    expect(problems('tensor_parallel_size: 2\n', start)).toEqual([
      expect.stringContaining('tensor_parallel_size: supported by vLLM only'),
    ]);
    expect(problems('args: [--port, "8000", --host, 0.0.0.0]\n', start)).toEqual([]);
  });
});

describe('valid container engine files', () => {
  it('can have a --max-model-len of context_length or more, and argument values of several words', () => {
    const json = `'{"temperature": 0.2, "note": "a --b"}'`;
    for (const words of [
      ...['4096', '4K', '1M'].map((length) => `--max-model-len, "${length}"`),
      ...[json, '"=a text of words"', '"You are helpful. Answer."'].map((value) => `--generation-config, ${value}`),
    ]) {
      expect(problems('', `driver: docker\n${image}args: [Acme/Chat, ${words}]\n`), words).toEqual([]);
    }
  });

  it('can set only replicas.min or only replicas.max', () => {
    const read = (text: string) => settings(`replicas: ${text}\n`).replicas;
    expect([read('{min: 3}'), read('{max: 4}')]).toEqual([
      { min: 3, max: 3 },
      { min: 0, max: 4 },
    ]);
  });

  it.each([
    ['chat', 'responses', '{input: Hi}'],
    ['chat', 'messages', '{messages: [], max_tokens: 1}'],
    ['rerank', 'rerank', '{query: Hi, documents: [Hello]}'],
  ])('can have a canary of a %s model on %s', (task, route, body) => {
    const text = `driver: docker\n${image}args: [Acme/Chat]\ncanaries: [{route: ${route}, body: ${body}}]\n`;
    writeFileSync(join(folder, 'chat.yaml'), head.replace('task_type: chat', `task_type: ${task}`) + text);
    expect(loadEngineFiles(folder)).toMatchObject({ ok: true });
  });

  it('get the default settings', () => {
    expect(settings('')).toEqual({
      type: 'docker',
      image: 'vllm/vllm-openai:v0.32.0',
      args: ['Acme/Chat'],
      entrypoint: null,
      env: {},
      gpus: null,
      shmBytes: null,
      memoryBytesMax: null,
      ulimits: {},
      cpuset: {},
      volumes: [],
      port: 8000,
      hosts: [],
      placement: 'pack',
      constraints: [],
      idleMs: 300_000,
      startTimeoutMs: 1_800_000,
      drainMs: 30_000,
      upMinMs: 60_000,
      replicas: { min: 0, max: 1 },
      schedule: [],
      pinned: false,
      sleepLevel: 0,
      canaries: [],
    });
  });

  it('keep every field, and pass parallel size and sleep mode to vLLM as arguments', () => {
    const text = `gpus: {count: 4, memory_gib: 79.5, profile: H100}
sleep_level: 2
ulimits: {memlock: -1}
cpuset_cpus: 0-15,32-47
cpuset_mems: '0'
shm_size: 1.5GB
memory_limit: 64 gib
volumes: ["hf-cache:/root/.cache/huggingface", "/srv/models:/models:ro"]
hosts: [local]
placement: spread
replicas: {min: 1, max: 4}
pinned: true
min_up_seconds: 0
canaries:
  - route: chat/completions
    body: {messages: [{role: user, content: "1+1?"}], max_tokens: 4}
    contains: "2"
`;
    expect(settings(text)).toMatchObject({
      args: ['Acme/Chat', '--tensor-parallel-size', '4', '--enable-sleep-mode'],
      gpus: { count: 4, memoryBytesMin: 85_362_475_008, profile: 'H100' },
      shmBytes: 1_610_612_736,
      memoryBytesMax: 68_719_476_736,
      ulimits: { memlock: -1 },
      cpuset: { cpus: '0-15,32-47', mems: '0' },
      volumes: [
        { source: 'hf-cache', target: '/root/.cache/huggingface', readOnly: false },
        { source: '/srv/models', target: '/models', readOnly: true },
      ],
      hosts: ['local'],
      placement: 'spread',
      replicas: { min: 1, max: 4 },
      pinned: true,
      upMinMs: 0,
      sleepLevel: 2,
      canaries: [{ route: 'chat/completions', body: { max_tokens: 4 }, contains: '2' }],
    });
  });

  it('do not repeat what args already contain, and get shared memory for several GPUs', () => {
    const args = 'args: [Acme/Chat, "-tp", "2", "-pp", "2", --enable-sleep-mode]\n';
    const found = settings('gpus: {count: 4}\nsleep_level: 1\n', `driver: docker\n${image}${args}`);
    expect(found.args).toEqual(['Acme/Chat', '-tp', '2', '-pp', '2', '--enable-sleep-mode']);
    expect(found.shmBytes).toBe(17_179_869_184);
  });

  it('define swarm services with their constraints', () => {
    const start = `driver: swarm\n${image}args: [Acme/Chat]\n`;
    const constraints = ['node.labels.gpu == h100'];
    const found = settings('constraints: ["node.labels.gpu == h100"]\n', start);
    expect(found).toMatchObject({ type: 'swarm', hosts: [], constraints });
  });

  it('are loaded beside hosts.yaml, which is not an engine file', () => {
    writeFileSync(join(folder, 'hosts.yaml'), 'hosts: []\n');
    expect(problems('')).toEqual([]);
  });
});
