import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { createCatalog, loadEngineFiles } from '#core/catalog/catalog.ts';
import { chat, external, enginesFolder, load, problems, write, useEnginesFolder } from './engines-folder.ts';

useEnginesFolder();

describe('engine file validation', () => {
  it('reports the line where YAML nests deeper than 100 levels', () => {
    const deep = 3000;
    const blocks = Array.from({ length: 900 }, (_, at) => `${' '.repeat(at)}a:\n`).join('');
    for (const [more, line] of [
      [`x: ${'['.repeat(deep)}`, 13],
      [`x: ${'[['.repeat(deep)}${']]'.repeat(deep)}`, 13],
      [`x:\n${'- '.repeat(deep)}`, 14],
      [`x: ${'{a: '.repeat(deep)}`, 13],
      [blocks, 112],
    ] as const) {
      write('chat.yaml', `${chat}${more}\n`);
      expect(problems()).toEqual([
        expect.stringMatching(new RegExp(`^engines/chat\\.yaml:${line}: not valid YAML: more than 100 nested levels`)),
      ]);
    }
    write('chat.yaml', `${chat}x: ${'['.repeat(50)}${']'.repeat(50)}\n`);
    expect(problems()).toEqual(['engines/chat.yaml:13: x: unknown field']);
  });

  it('quotes neither long values nor possible secrets', () => {
    const run = (option: string): string =>
      chat.replace(/command: .*/, `command: [docker, run, ${option}, "acme/chat:1", "{port}"]`);
    for (const text of [
      run(`--api-key, nobody-may-see-this-one`),
      run(`--token=nobody-may-see-this-one`),
      run(`"--security-opt=${'x'.repeat(9000)}"`),
      run(`-v, "/etc/${'x'.repeat(9000)}:/x"`),
      `${chat}${'x'.repeat(1000)}: y\n`,
    ]) {
      write('chat.yaml', text);
      const found = problems();
      expect(found.length).toBeGreaterThan(0);
      expect(Math.max(...found.map(({ length }) => length))).toBeLessThan(1000);
      expect(found.join()).not.toContain('nobody-may-see-this-one');
    }
  });

  it('reports the line of an invalid alias, tag, key, escape or second document', () => {
    for (const [line, said] of [
      ['x: [*nothing]', /no anchor/],
      ['x: &own [*own]', /inside its own anchor/],
      ['x: &own {a: {b: *own}}', /inside its own anchor/],
      ['x: !js/function y', /this tag is not supported/],
      ['x: !!set {a}', /tag !!set/],
      ['x: !!timestamp 2001-01-01', /tag !!timestamp/],
      ['? [a, b]\n: c', /a key/],
      ['? {a: b}\n: c', /a key/],
      ['x: "\\x"hf_nobodymayseethisone00000', /escape sequence$/],
      ['x: !hf_nobodymayseethisone00000', /in quotes/],
      ['x: *hf_nobodymayseethisone00000', /in quotes/],
      ['x: |hf_nobodymayseethisone00000', /extra characters$/],
      ['---\nx: y', /one document/],
    ] as const) {
      write('chat.yaml', `${chat}${line}\n`);
      expect(problems(), line).toEqual([expect.stringMatching(/^engines\/chat\.yaml:13: /)]);
      expect(problems()[0], line).toMatch(said);
      expect(problems()[0], line).not.toMatch(/YAML\.|mapAsMap|hf_/);
    }
  });

  it('reports file, line and field of a price that is not a plain decimal', () => {
    for (const price of ['1e-1', '-0.1', '0.1234567', '1_000', '0x10', '.5', '+1', 'free', 'true', '.inf']) {
      write('chat.yaml', chat.replace('0.10', price));
      expect(problems(), price).toEqual([
        expect.stringMatching(/^engines\/chat\.yaml:8: pricing\.input_per_million: expected an amount in US dollars/),
      ]);
    }
  });

  it('rejects a flex_multiplier outside 0 to 1, and a max_concurrent below 1', () => {
    for (const share of ['1.1', '-0.5', '2', '5e-1', '0.1234567', 'half', '1.000001']) {
      write('chat.yaml', chat.replace('0.400000', `0.400000\n  flex_multiplier: ${share}`));
      expect(problems(), share).toEqual([
        expect.stringMatching(/^engines\/chat\.yaml:11: pricing\.flex_multiplier: expected a decimal from 0 to 1/),
      ]);
    }
    write('chat.yaml', chat.replace('context_length: 4096', 'context_length: 4096\nmax_concurrent: 0'));
    expect(problems()).toEqual([expect.stringMatching(/^engines\/chat\.yaml:7: max_concurrent: /)]);
  });

  it('reports an unknown field with its line', () => {
    write('chat.yaml', chat.replace('context_length: 4096', 'context_length: 4096\nreplica: 3'));
    expect(problems()).toEqual(['engines/chat.yaml:7: replica: unknown field']);
  });

  it('reports a missing field', () => {
    write('chat.yaml', chat.replace('task_type: chat\n', ''));
    expect(problems()).toEqual(['engines/chat.yaml:1: task_type: this field is missing']);
  });

  it('reports a nested field at its own line', () => {
    write('chat.yaml', chat.replace('  cached_input_per_million: "0.05"\n', '  cached_per_million: 1\n'));
    expect(problems()).toEqual([
      'engines/chat.yaml:7: pricing.cached_input_per_million: this field is missing',
      'engines/chat.yaml:9: pricing.cached_per_million: unknown field',
    ]);
  });

  it('reports every problem of every file at once', () => {
    write('a.yaml', chat.replace('version: 1', 'version: 2').replace('4096', '-1'));
    write('b.yaml', 'id: [');
    write('c.yaml', '');
    write(
      'd.yaml',
      external.replace('task_type: chat', 'task_type: poetry').replace('driver: external', 'driver: ssh'),
    );
    const found = problems();
    expect(found).toContain('engines/a.yaml:1: version: expected 1');
    expect(found).toContain('engines/a.yaml:6: context_length: must be at least 1');
    expect(found).toContainEqual(expect.stringMatching(/^engines\/b\.yaml:1: not valid YAML/));
    expect(found).toContain('engines/c.yaml:1: expected fields such as "id: my-model"');
    expect(found).toContainEqual(
      expect.stringMatching(/^engines\/d\.yaml:7: driver: expected "process", "docker", "swarm" or "external"/),
    );
  });

  it('rejects an id, name, alias or repository of another file, case-insensitively', () => {
    write('a.yaml', chat);
    write('b.yaml', external.replace('id: far-chat', 'id: SMALL-CHAT'));
    write('c.yaml', external.replace('far-chat', 'other').replace('name: Far Chat', 'name: acme/small-chat'));
    const found = problems();
    expect(found).toContain(
      'engines/b.yaml:2: id: "SMALL-CHAT" is already the id, name, alias or repository of engines/a.yaml: choose a different id for one of them',
    );
    expect(found).toContain(
      'engines/c.yaml:3: name: "acme/small-chat" is already the id, name, alias or repository of engines/a.yaml: choose a different name for one of them',
    );
    // Two engines may serve one repository: c.yaml and b.yaml.
    expect(found).toHaveLength(2);
    write(
      'd.yaml',
      external.replaceAll(/far-chat/gi, 'third').replace('name: Far Chat', 'name: T\naliases: [t3, Small-CHAT]'),
    );
    expect(problems()).toContain(
      'engines/d.yaml:4: aliases[1]: "Small-CHAT" is already the id, name, alias or repository of engines/a.yaml: remove it from one of the two files',
    );
  });

  it('rejects an invalid id', () => {
    for (const id of ['/lead', 'with space', 'ümlaut', '-flag', 'x'.repeat(129), '""']) {
      write('chat.yaml', chat.replace('small-chat', id));
      expect(problems(), id).toEqual([expect.stringMatching(/^engines\/chat\.yaml:2: id: /)]);
    }
  });

  it('rejects an external address with credentials, a query, /v1 or another protocol', () => {
    for (const url of [
      'https://user:secret@e.example',
      'http://e.example?x=1',
      'http://e.example/v1',
      'ftp://e.example',
      'e.example',
    ]) {
      write('far.yaml', external.replace('https://engine.example/base/', url));
      const [problem, ...others] = problems();
      expect(problem, url).toMatch(/^engines\/far\.yaml:8: url: /);
      expect(problem).not.toContain('secret');
      expect(others).toEqual([]);
    }
  });

  it('rejects a command without {socket} or {port}, or with both', () => {
    write('chat.yaml', chat.replace('"{socket}"', '/tmp/x.sock'));
    expect(problems()).toEqual([
      expect.stringMatching(/^engines\/chat\.yaml:12: command: must contain \{socket\} or \{port\}/),
    ]);
    write('chat.yaml', chat.replace('"{socket}"', '"{socket}", "{port}"'));
    expect(problems()).toEqual([expect.stringMatching(/not both/)]);
  });

  it('rejects a vLLM command with its own port, served name or API key', () => {
    const command = (text: string) =>
      chat.replace(/command: .*/, `command:\n  - /opt/vllm/bin/vllm\n  - serve\n  - m\n${text}`);
    write('chat.yaml', command('  - --port=8000\n'));
    expect(problems()).toEqual(['engines/chat.yaml:16: command[3]: --port needs {port} as its value']);
    write('chat.yaml', command('  - --served_model_name\n  - other\n'));
    expect(problems()).toEqual([
      expect.stringMatching(/^engines\/chat\.yaml:16: command\[3\]: the first --served-model-name/),
    ]);
    for (const flag of ['--api-key', '--api_key', '--api-k', '--api-k=k']) {
      write('chat.yaml', command(`  - ${flag}\n  - k\n`));
      expect(problems(), flag).toEqual([expect.stringMatching(/^engines\/chat\.yaml:16: command\[3\]: --api-key/)]);
    }
  });

  it('rejects a vLLM command that cannot serve', () => {
    const command = (words: string) => chat.replace(/command: .*/, `command: [vllm, serve, m, ${words}]`);
    for (const [words, why] of [
      ['--config, vllm.yaml', 'put the options of that file here'],
      ['--nnodes, "2"', 'raise replicas.max to run more'],
      ['--tokens-only', 'no route for text'],
      ['--middleware, acme.Log', 'could change what is billed'],
      ['--max-model-len, "2048"', 'is below context_length 4096'],
      ['"--max-num-seqs 8"', 'two words in one item'],
      ['--ssl-keyfile, key.pem', 'plain HTTP'],
    ] as const) {
      write('chat.yaml', command(words));
      expect(problems(), words).toEqual([expect.stringContaining(why)]);
    }
    write(
      'chat.yaml',
      chat.replace(/command: .*/, 'kind: vllm\ncommand: [sh, -c, "exec vllm serve m --uds {socket}"]'),
    );
    expect(problems()).toEqual([]);
  });

  it('rejects a reference to an unset variable unless the engine is disabled or no environment is given', () => {
    write('chat.yaml', `${chat}env:\n  HF_TOKEN: "\${MY_TOKEN}"\n`);
    write('far.yaml', `${external}api_key_env: FAR_KEY\n`);
    expect(problems({ MY_TOKEN: '' })).toEqual([
      'engines/chat.yaml:14: env.HF_TOKEN: the environment variable MY_TOKEN is not set',
      'engines/far.yaml:9: api_key_env: the environment variable FAR_KEY is not set',
    ]);
    expect(problems({ MY_TOKEN: 'a', FAR_KEY: 'b' })).toEqual([]);
    expect(problems()).toEqual([]);
    write('chat.yaml', `${chat}enabled: false\nenv:\n  HF_TOKEN: "\${MY_TOKEN}"\n`);
    expect(problems({ FAR_KEY: 'b' })).toEqual([]);
  });

  it('rejects .yml files, oversized files, alias bombs and a missing folder', () => {
    write('a.yml', chat);
    write('b.yaml', `${chat}# ${'x'.repeat(1_048_576)}`);
    write(
      'c.yaml',
      `a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n`,
    );
    const found = problems();
    expect(found).toContain('engines/a.yml: ignored: engine files must end in .yaml');
    expect(found).toContain('engines/b.yaml: larger than 1048576 bytes');
    expect(found).toContainEqual(expect.stringMatching(/^engines\/c\.yaml:1: not valid YAML: Excessive alias count/));
    const missing = loadEngineFiles(join(enginesFolder(), '../nowhere'));
    expect(missing).toMatchObject({
      ok: false,
      problems: [{ line: null, message: expect.stringContaining('ENOENT') }],
    });
  });
});

describe('valid engine files', () => {
  it('can share one repository name, which then finds neither engine, while their ids do', () => {
    write('a.yaml', chat);
    write(
      'b.yaml',
      chat.replace('id: small-chat', 'id: small-chat-2').replace('name: Small Chat', 'name: Small Chat 2'),
    );
    const find = (): (string | undefined)[] => {
      const catalog = createCatalog({ db: null as never, clock: systemClock, engines: load() });
      return ['small-chat', 'SMALL-CHAT-2', 'Acme/Small-Chat'].map((name) => catalog.find(name)?.id);
    };
    expect(find()).toEqual(['small-chat', 'small-chat-2', undefined]);
    write('b.yaml', external);
    expect(find()).toEqual(['small-chat', undefined, 'small-chat']);
  });

  it('keep prices exact, written as numbers or as text', () => {
    write('chat.yaml', chat.replace('0.10', '123456789.123456'));
    expect(load()[0]?.pricing).toEqual({
      inputPerMTokMicroUsd: 123_456_789_123_456n,
      cachedInputPerMTokMicroUsd: 50_000n,
      outputPerMTokMicroUsd: 400_000n,
    });
  });

  it('round the flex prices up to whole micro-dollars per million tokens, once', () => {
    for (const [share, input, cached, output] of [
      ['0.5', 50_000n, 25_000n, 200_000n],
      ['"0.333333"', 33_334n, 16_667n, 133_334n],
      ['0.000001', 1n, 1n, 1n],
      ['0', 0n, 0n, 0n],
      ['1.0', 100_000n, 50_000n, 400_000n],
    ] as const) {
      write('chat.yaml', chat.replace('0.400000', `0.400000\n  flex_multiplier: ${share}`));
      expect(load()[0]?.flexPricing, share).toEqual({
        inputPerMTokMicroUsd: input,
        cachedInputPerMTokMicroUsd: cached,
        outputPerMTokMicroUsd: output,
      });
    }
    write('chat.yaml', chat.replace('context_length: 4096', 'context_length: 4096\nmax_concurrent: 12'));
    expect(load()[0]).toMatchObject({ flexPricing: null, concurrencyMax: 12 });
  });

  it('get the default settings', () => {
    write('chat.yaml', chat);
    write('far.yaml', external);
    const [small, far] = load();
    expect(small).toMatchObject({
      file: 'engines/chat.yaml',
      enabled: true,
      ownedBy: 'Acme',
      kind: 'openai',
      allow: [],
      unservedTools: 'reject',
      mediaDomains: [],
      nMax: null,
      mediaMax: 32,
      structuredOutputs: { choicesMax: 1000, depthMax: 16, propertiesMax: 500, bytesMax: 65_536, repetitionsMax: 250 },
      shareCache: false,
      driver: {
        type: 'process',
        env: {},
        idleMs: 300_000,
        startTimeoutMs: 600_000,
        drainMs: 30_000,
        replicas: { min: 0, max: 1 },
        schedule: [],
      },
    });
    expect(far).toMatchObject({
      pricing: null,
      driver: {
        type: 'external',
        deployments: [
          { name: null, url: 'https://engine.example/base', upstreamModel: null, apiKeyEnv: null, weight: 1 },
        ],
        findsKind: true,
      },
    });
  });

  it('set defaults and overrides of the request fields that they may set', () => {
    write('chat.yaml', `${chat}defaults: { temperature: 0.2 }\noverrides: { top_p: null, max_tokens: 100 }\n`);
    const requestChanges = { defaults: { temperature: 0.2 }, overrides: { top_p: null, max_tokens: 100 } };
    expect(load()[0]).toMatchObject({ requestChanges });
    for (const [line, said] of [
      ['defaults: { model: x }', /defaults\.model: unknown field/],
      ['overrides: { stream: true }', /overrides\.stream: unknown field/],
      ['overrides: { n: 2 }', /overrides\.n: unknown field/],
      ['defaults: { temperature: null }', /defaults\.temperature: expected number/],
      ['overrides: { max_tokens: 0 }', /overrides\.max_tokens: must be at least 1/],
      ['overrides: { temperature: "0.2" }', /overrides\.temperature: expected number/],
    ] as const) {
      write('chat.yaml', `${chat}${line}\n`);
      expect(problems(), line).toEqual([expect.stringMatching(said)]);
    }
  });

  it('set structured_outputs, max_media, share_cache and allow', () => {
    const lines = 'structured_outputs: { max_choices: 5, max_repetitions: 9 }\nmax_media: 2\nshare_cache: true\n';
    write('chat.yaml', `${chat}${lines}allow: [regex, grammar, uuid, use_beam_search]\n`);
    expect(load()[0]).toMatchObject({
      allow: ['regex', 'grammar', 'uuid', 'use_beam_search'],
      mediaMax: 2,
      structuredOutputs: { choicesMax: 5, depthMax: 16, propertiesMax: 500, bytesMax: 65_536, repetitionsMax: 9 },
      shareCache: true,
    });
  });

  it('get kind vllm from the program name or the kind field', () => {
    write('a.yaml', chat.replace(/command: .*/, 'command: [/opt/venv/bin/vllm, serve, m]'));
    write('b.yaml', external.concat('kind: vllm\n'));
    expect(load().map(({ kind }) => kind)).toEqual(['vllm', 'vllm']);
  });

  it('contain references to secrets, never their values', () => {
    write('chat.yaml', `${chat}env:\n  HF_TOKEN: "\${MY_TOKEN}"\n`);
    const text = JSON.stringify(load({ MY_TOKEN: 'hf_secret' }), (_, value: unknown) =>
      typeof value === 'bigint' ? String(value) : value,
    );
    expect(text).toContain('${MY_TOKEN}');
    expect(text).not.toContain('hf_secret');
  });

  it('are read from the folder itself, without hidden files and subfolders', () => {
    write('chat.yaml', chat);
    write('.draft.yaml', 'nonsense');
    mkdirSync(join(enginesFolder(), 'examples'));
    writeFileSync(join(enginesFolder(), 'examples', 'x.yaml'), 'nonsense');
    expect(load().map(({ id }) => id)).toEqual(['small-chat']);
  });
});
