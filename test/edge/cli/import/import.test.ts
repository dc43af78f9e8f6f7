import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { runCli, useFolders } from '#test/cli/run-cli.ts';
import { importInto } from './import-into.ts';

const folders = useFolders();

const importFrom = (program: string, config: string) => importInto(folders(), program, config);

const secret = 'hf_nobodymayseethisone00000';

const llamaSwap = `
healthCheckTimeout: 400
globalTTL: 900
macros:
  server: /opt/llama/llama-server --port \${PORT} \${flags}
  flags: --jinja
hooks:
  on_startup:
    preload: [small]
groups:
  keep:
    persistent: true
    members: [coder]
models:
  small:
    cmd: |
      # comments go
      \${server} -hf acme/Small-GGUF:Q4_K_M \\
        --ctx-size \${size}
    macros:
      size: 8192
    aliases: [gpt-small, mini]
    ttl: 60
  Big Model:
    name: Big
    cmd: >
      vllm serve acme/Big --port \${PORT} --host 0.0.0.0 --max-model-len 32k
      --served-model-name big also-big --api-key ${secret} -tp 2
    env: ["HF_TOKEN=${secret}", "OMP_NUM_THREADS=4"]
    filters:
      stripParams: temperature
  coder:
    cmd: |
      docker run --rm --init --name coder --runtime=nvidia --gpus '"device=2,3"' --shm-size=16g --ulimit memlock=-1 --ulimit nofile=9 --cpuset-mems 1
        -v /srv/cache:/root/.cache:ro -v ~/models:/models -e HF_TOKEN=${secret} -eOTHER -p \${PORT}:9000
        vllm/vllm-openai:v0.11.0 --model "acme/Coder" --port 9000 --tensor-parallel-size 2 --max-model-len 65536
    cmdStop: docker stop coder
  vectors:
    proxy: http://127.0.0.1:9191
    cmd: embed-server --listen 127.0.0.1:9191 --embeddings
  sorter:
    cmd: llama-server --port \${PORT} --reranking -m /models/sorter.gguf -c 4096
  elsewhere:
    cmd: docker run -p \${PORT}:8080 ghcr.io/acme/server
  homely:
    cmd: llama-server --port \${PORT} -m \${env.HOME}/model.gguf -c 4096
  portless:
    cmd: some-server --quiet
  open-quote:
    cmd: "server 'quote"
peers:
  far:
    proxy: https://far.example/api/v1
    apiKey: \${env.FAR_KEY}
    models: [acme/one]
  near:
    proxy: http://near.example:8080
    apiKey: ${secret}
    models: [two]
`;

describe.each([
  ['llama-swap', `apiKeys: [${secret}`, `apiKeys: &own [*own]\nmodels: {}`, 'models:\n  a: {ttl: x}'],
  ['litellm', `general_settings: {master_key: "${secret}`, 'x: &own [*own]\nmodel_list: []', 'model_list: [{}]'],
])('headgate import %s with an unreadable file', (program, broken, endless, wrong) => {
  it.each([
    ['is no YAML', broken, /^headgate: not valid YAML: line 1: /],
    ['has an alias within its anchor', endless, /^headgate: not valid YAML: line 1: .*inside its own anchor/],
    ['goes too deep', '['.repeat(3000), /^headgate: not valid YAML: line 1: .*levels/],
    ['merges what cannot be merged', '<<: x\n', /^headgate: not valid YAML: /],
    [
      'has a field of another type',
      wrong,
      /^headgate: this is not a configuration of [\w-]+: \S+: (?:expected|this field)/,
    ],
  ])('%s: prints one line without secrets', async (_, config, said) => {
    const { code, stderr, everything } = await importFrom(program, config);
    expect(stderr).toMatch(said);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(code).toBe(1);
    expect(everything).not.toContain(secret);
    expect(everything).not.toMatch(/call stack|Invalid input|undefined/);
  });
});

describe('headgate import llama-swap', () => {
  it('rejects a file that is not a llama-swap configuration or has nothing to import', async () => {
    expect(await importFrom('llama-swap', 'models: [a, b]')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('this is not a configuration of llama-swap: models'),
    });
    expect(await importFrom('llama-swap', 'models:\n  a:\n    cmd: "x"')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('has no model that can be imported'),
    });
    expect(await importFrom('llama-swap', 'a: [')).toMatchObject({ code: 1, stderr: expect.stringContaining('YAML') });
    const joined = 'models: {a: {cmd: "server {port}", api_key:nobody-may-see-it, x: {y:nobody-may-see-it}}}';
    const { notes } = await importFrom('llama-swap', joined);
    expect(notes).toContain('a: not imported, because Headgate has no such setting: api_key…, x (y…)');
    expect(notes.join()).not.toContain('nobody-may-see-it');
    const misread = `models:\n  a:\n    cmd: docker run --user -e T=${secret} acme/server:1`;
    expect((await importFrom('llama-swap', misread)).everything).not.toContain(secret);
    const endless = 'macros: {a: "${a} ${a} ${a} ${a} ${a} ${a} ${a} ${a}"}\nmodels: {m: {cmd: "${a}"}}';
    expect(await importFrom('llama-swap', endless)).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^headgate: its macros make a text longer than \d+ characters\n$/),
    });
    expect(await runCli(['import', 'llama-swap', '/nowhere/config.yaml'])).toMatchObject({ code: 2 });
  });

  it('writes files that the gateway accepts, without secrets', async () => {
    const { code, engines, everything, out } = await importFrom('llama-swap', llamaSwap);
    expect(code).toBe(0);
    expect([...engines.keys()].toSorted()).toEqual(
      ['Big-Model', 'coder', 'far/acme/one', 'homely', 'near/two', 'small', 'sorter', 'vectors'].toSorted(),
    );
    expect(everything).not.toContain(secret);
    expect(await runCli(['engines', 'validate', out])).toMatchObject({ code: 0 });
  });

  it('imports commands as processes and containers', async () => {
    const { engines } = await importFrom('llama-swap', llamaSwap);
    expect(engines.get('small')).toMatchObject({
      name: 'gpt-small',
      aliases: ['mini'],
      huggingFaceId: 'acme/Small-GGUF',
      contextLength: 8192,
      kind: 'openai',
      driver: {
        type: 'process',
        command: '/opt/llama/llama-server --port {port} --jinja -hf acme/Small-GGUF:Q4_K_M --ctx-size 8192'.split(' '),
        idleMs: 60_000,
        startTimeoutMs: 400_000,
        group: { name: '(default)', swap: true, exclusive: true, persistent: false },
        replicas: { min: 0, max: 1 },
      },
    });
    expect(engines.get('Big-Model')).toMatchObject({
      requestChanges: { defaults: {}, overrides: { temperature: null } },
      name: 'Big',
      huggingFaceId: 'acme/Big',
      contextLength: 32_000,
      kind: 'vllm',
      driver: {
        command: ['vllm', 'serve', 'acme/Big', '--max-model-len', '32k', '-tp', '2'],
        env: { HF_TOKEN: '${HF_TOKEN}', OMP_NUM_THREADS: '4' },
        idleMs: 900_000,
      },
    });
    expect(engines.get('coder')).toMatchObject({
      huggingFaceId: 'acme/Coder',
      contextLength: 65_536,
      kind: 'vllm',
      driver: {
        type: 'docker',
        image: 'vllm/vllm-openai:v0.11.0',
        args: ['acme/Coder', '--tensor-parallel-size', '2', '--max-model-len', '65536'],
        env: { HF_TOKEN: '${HF_TOKEN}', OTHER: '${OTHER}' },
        gpus: { count: 2 },
        shmBytes: 17_179_869_184,
        ulimits: { memlock: -1 },
        cpuset: { mems: '1' },
        volumes: [{ source: '/srv/cache', target: '/root/.cache', readOnly: true }],
        port: 9000,
        pinned: true,
      },
    });
    expect(engines.get('vectors')).toMatchObject({
      taskType: 'embedding',
      driver: { command: ['embed-server', '--listen', '127.0.0.1:{port}', '--embeddings'] },
    });
    expect(engines.get('sorter')).toMatchObject({ taskType: 'rerank', contextLength: 4096 });
    expect(engines.get('far/acme/one')).toMatchObject({
      huggingFaceId: 'acme/one',
      driver: {
        deployments: [{ url: 'https://far.example/api', upstreamModel: 'acme/one', apiKeyEnv: 'FAR_KEY' }],
        findsKind: true,
      },
    });
    expect(engines.get('near/two')).toMatchObject({ driver: { deployments: [{ apiKeyEnv: 'NEAR_API_KEY' }] } });
  });

  it('imports groups with their rules for running together and stopping each other', async () => {
    const server = 'server --port ${PORT} -m /models';
    const groups = { swapped: { members: ['a', 'b'] }, beside: { swap: false, exclusive: false, members: ['c'] } };
    const kept = { persistent: true, swap: false, exclusive: false, members: ['d', 'gone'] };
    const config = {
      models: Object.fromEntries(['a', 'b', 'c', 'd'].map((id) => [id, { cmd: `${server}/${id} -c 4096` }])),
      groups: { ...groups, kept },
      hooks: { on_startup: { preload: ['a', 'c'] } },
    };
    const { engines, notes, out } = await importFrom('llama-swap', JSON.stringify(config));
    const swapped = { name: 'swapped', swap: true, exclusive: true, persistent: false };
    expect(engines.get('a')).toMatchObject({ driver: { group: swapped, replicas: { min: 0 } } });
    expect(engines.get('b')).toMatchObject({ driver: { group: swapped } });
    const beside = { name: 'beside', swap: false, exclusive: false, persistent: false };
    expect(engines.get('c')).toMatchObject({ driver: { group: beside, replicas: { min: 1 } } });
    expect(engines.get('d')).toMatchObject({ driver: { group: { ...beside, name: 'kept', persistent: true } } });
    expect(notes).toContain('-: groups.kept.members: there is no model gone');
    expect(notes.some((note) => note.startsWith('a: hooks.on_startup.preload: not imported; only one'))).toBe(true);
    expect(await runCli(['engines', 'validate', out])).toMatchObject({ code: 0 });
  });

  it('lists what it did not import, on the terminal and in the files', async () => {
    const { notes, engines, out } = await importFrom('llama-swap', llamaSwap);
    for (const note of [
      'Big Model: the engine has the id Big-Model',
      'Big Model: --api-key: not imported',
      "Big Model: the value of HF_TOKEN may be a secret and was not written to the file: set HF_TOKEN in the gateway's environment",
      'coder: devices 2,3: not imported; Headgate chooses free GPUs',
      "coder: docker's option --ulimit nofile=9: not imported",
      'coder: the volume ~/models:/models: not imported',
      'elsewhere: not imported: the image ghcr.io/acme/server has no fixed version',
      'homely: disabled: its command uses environment variables; replace HOME with the value',
      'portless: not imported: its cmd has no port',
      'open-quote: not imported',
      'near: its API key was not written to the file: set NEAR_API_KEY',
      'coder: its group keep: not imported; only processes can have groups',
      '-: 8 models are in no group: as with llama-swap, only one of them runs at a time',
      'small: hooks.on_startup.preload: not imported; only one model',
    ]) {
      expect(notes, note).toContainEqual(expect.stringContaining(note));
    }
    expect(engines.get('homely')?.enabled).toBe(false);
    expect(readFileSync(join(out, 'coder.yaml'), 'utf8')).toContain(
      "# docker's option --ulimit nofile=9: not imported",
    );
  });
});

describe('headgate import', () => {
  it('overwrites nothing without --force, and then writes no file at all', async () => {
    const folder = folders();
    const config = join(folder, 'config.yaml');
    const entry = (name: string) =>
      `  - model_name: ${name}\n    litellm_params: {model: openai/${name}, api_base: "http://a.example"}\n`;
    writeFileSync(config, `model_list:\n${entry('first')}${entry('second')}`);
    writeFileSync(join(folder, 'second.yaml'), 'mine: true\n');
    const call = ['import', 'litellm', config, '--out', folder];
    const refused = await runCli(call);
    expect(refused).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('second.yaml already exists; --force'),
    });
    expect(existsSync(join(folder, 'first.yaml'))).toBe(false);
    expect(readFileSync(join(folder, 'second.yaml'), 'utf8')).toBe('mine: true\n');
    // The configuration itself lies in that folder, and is no engine file: the check at the end says so.
    const forced = await runCli([...call, '--force']);
    expect(forced.stdout).toContain('wrote');
    expect(forced.code).toBe(1);
    expect(forced.stderr).toMatch(/config\.yaml:1: /);
    expect(parse(readFileSync(join(folder, 'second.yaml'), 'utf8'))).toMatchObject({ id: 'second' });
  });

  it('writes to HEADGATE_ENGINES_DIR by default', async () => {
    const folder = folders();
    const out = join(folder, 'mine');
    writeFileSync(join(folder, 'c.yaml'), 'models:\n  a:\n    cmd: server --port ${PORT} -c 4096\n');
    const result = await runCli(['import', 'llama-swap', join(folder, 'c.yaml')], {
      env: { HEADGATE_ENGINES_DIR: out },
    });
    expect(result).toMatchObject({ code: 0, stdout: expect.stringContaining(`wrote ${out}/a.yaml (a)`) });
  });
});
