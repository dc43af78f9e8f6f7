import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json, text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { processIdentity } from '#base/process-identity.ts';
import { pi } from '#edge/cli/chat/code-agents.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { externalFile } from '#test/inference/inference-gateway.ts';
import { type CliOptions, repository, runCli, useFolders } from '#test/cli/run-cli.ts';

/** JSON of any shape; tests compare it. */
type Json = ReturnType<JSON['parse']>;

const folders = useFolders();
// Pi is installed once for all tests of this machine, as for a user of it.
const programs = join(tmpdir(), 'hg-cli-programs');

/** How npm is set up on this machine, and the way to its registry. */
const npmSettings = Object.fromEntries(
  Object.entries(process.env).flatMap(([name, value = '']) =>
    /^npm_config_|_proxy$|^NODE_EXTRA_CA_CERTS$|^SSL_CERT_/i.test(name) ? [[name, value]] : [],
  ),
);

let gateway: TestGateway;
let engine: Server;
const asked: Json[] = [];
const enginesDir = mkdtempSync(join(tmpdir(), 'hg-engines-'));

/** A model that edits one file and is content then. */
beforeAll(async () => {
  engine = createServer((request, response) => {
    if (request.method !== 'POST') {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ object: 'list', data: [{ id: 'coder', object: 'model' }] }));
      return;
    }
    void json(request).then((body: Json) => {
      asked.push(body);
      const isDone = body.messages.some(({ role }: Json) => role === 'tool');
      const call = {
        index: 0,
        id: 'call_1',
        type: 'function',
        function: {
          name: 'edit',
          arguments: JSON.stringify({ path: 'greeting.txt', edits: [{ oldText: 'Hello', newText: 'Good morning' }] }),
        },
      };
      const delta = isDone ? { content: 'It is polite now.' } : { tool_calls: [call] };
      const chunk = (choices: object[], more: object = {}) =>
        `data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'coder', choices, ...more })}\n\n`;
      response.setHeader('content-type', 'text/event-stream');
      response.write(chunk([{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null }]));
      response.write(chunk([{ index: 0, delta, finish_reason: null }]));
      response.write(chunk([{ index: 0, delta: {}, finish_reason: isDone ? 'stop' : 'tool_calls' }]));
      response.write(chunk([], { usage: { prompt_tokens: 100, completion_tokens: 20, total_tokens: 120 } }));
      response.end('data: [DONE]\n\n');
    });
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => engine.once('listening', resolve));
  const address = engine.address();
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
  writeFileSync(join(enginesDir, 'coder.yaml'), externalFile('coder', url));
  gateway = await startGateway({ enginesDir });
});
afterAll(async () => {
  await gateway.stop();
  engine.close();
  rmSync(enginesDir, { recursive: true, force: true });
});

const run = (args: readonly string[], { env, ...options }: CliOptions = {}) =>
  runCli(['code', ...args], {
    ...options,
    env: { HEADGATE_URL: gateway.url, HEADGATE_API_KEY: gateway.key, XDG_DATA_HOME: programs, ...env },
  });

/** Where one process installs it, with that process's number behind it. */
const draft = `pi-coding-agent-${pi.version}`;

/** A program of this name in a folder of its own. */
function program(name: string, script: string): string {
  const folder = folders();
  writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`);
  chmodSync(join(folder, name), 0o755);
  return folder;
}

/** Something else in the place of pi. */
function fakePi(home: string, script: string): void {
  const folder = join(home, 'headgate', 'programs', draft, 'node_modules', pi.name, 'dist', 'bundle');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'cli.js'), script);
}

describe('headgate code', () => {
  it('names what is missing: a key, a model, opencode, npm or the package', async () => {
    const sentence = async (args: string[], env: Record<string, string>) => {
      const { code, stderr, stdout } = await run(args, { env });
      expect(stdout).toBe('');
      return `${code} ${stderr}`;
    };
    expect(await sentence([], { HEADGATE_API_KEY: '' })).toMatch(/^2 .*save a key with "headgate login"/);
    expect(await sentence(['-m', 'nope'], {})).toMatch(/^2 .*there is no chat model "nope"; use one of coder/);
    expect(await sentence(['--with', 'vi'], {})).toMatch(/^2 .*--with must be one of pi, opencode, codex, claude/);
    expect(await sentence(['--with', 'opencode'], { PATH: '/nonexistent' })).toMatch(
      /^1 .*opencode is not on the PATH; install it with "npm install --global opencode-ai"/,
    );
    expect(await sentence(['--with', 'claude'], { PATH: '/nonexistent' })).toMatch(
      /^1 .*claude is not on the PATH; install it with "npm install --global @anthropic-ai\/claude-code"/,
    );
    expect(await sentence(['--with', 'opencode', '--install-only'], {})).toMatch(
      /^2 .*--install-only installs pi, not opencode/,
    );
    const empty = { XDG_DATA_HOME: folders() };
    expect(await sentence([], { ...empty, PATH: '/nonexistent' })).toMatch(
      /^1 .*npm is not on the PATH, so pi cannot be installed/,
    );
    const noPackage = program('npm', 'echo "npm error code E404" >&2; echo "npm error 404 Not Found" >&2; exit 1');
    const refused = await sentence([], { ...empty, PATH: `${noPackage}:/usr/bin:/bin` });
    expect(refused).toContain('from npm\'s registry ("npm config get registry" prints it): 404 Not Found');
    // Nothing half-done stays.
    expect(readdirSync(join(empty.XDG_DATA_HOME, 'headgate', 'programs'))).toEqual([]);
  });

  it('cleans up an installation that is interrupted or was killed', async () => {
    const data = folders();
    const dir = join(data, 'headgate', 'programs');
    // Drafts of a process that ended, of one that installs just now, and a file that is no draft.
    const ended = spawnSync('true').pid;
    const [left, busy, older] = [`${draft}.${ended}`, `${draft}.${process.pid}`, 'pi-coding-agent-0.86.2'];
    for (const name of [left, busy, older]) mkdirSync(join(dir, name, 'node_modules'), { recursive: true });
    const npm = program('npm', 'echo half > half.txt; echo $$ > "$HOME/npm.pid"; exec sleep 600');
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      const home = folders();
      const env = { HEADGATE_URL: gateway.url, HEADGATE_API_KEY: gateway.key, XDG_DATA_HOME: data, HOME: home };
      const command = [join(repository, 'src/programs/headgate.js'), 'code', '--install-only'];
      const child = spawn(process.execPath, command, { env: { ...env, PATH: `${npm}:/usr/bin:/bin` } });
      const said = text(child.stderr);
      const closed = once(child, 'close');
      await expect.poll(() => existsSync(join(home, 'npm.pid'))).toBe(true);
      expect(readdirSync(dir).toSorted()).toEqual([older, `${draft}.${child.pid}`, busy].toSorted());
      child.kill(signal);
      expect([signal, ...(await closed)]).toEqual([signal, signal === 'SIGINT' ? 130 : 1, null]);
      expect(await said).toContain('headgate: interrupted\n');
      expect(readdirSync(dir).toSorted()).toEqual([older, busy].toSorted());
      expect(processIdentity(Number(readFileSync(join(home, 'npm.pid'), 'utf8')))).toBe(null);
    }
  });

  it('passes gateway and models to opencode, and the key in the environment only', async () => {
    const fake = program(
      'opencode',
      'echo "$OPENCODE_CONFIG_CONTENT"; echo "key=$HEADGATE_API_KEY"; echo "words=$*"; exit 3',
    );
    const env = { PATH: `${fake}:/usr/bin:/bin` };
    const { code, stdout } = await run(['--with', 'opencode', '--', 'run', '--help'], { env });
    expect(code).toBe(1);
    const [config = '', ...rest] = stdout.trim().split('\n');
    expect(rest).toEqual([`key=${gateway.key}`, 'words=run --help']);
    expect(JSON.parse(config)).toMatchObject({
      model: 'headgate/coder',
      // No other provider sees anything of the code, not even for a title.
      small_model: 'headgate/coder',
      enabled_providers: ['headgate'],
      share: 'disabled',
      provider: {
        headgate: {
          options: { baseURL: `${gateway.url}/v1`, apiKey: '{env:HEADGATE_API_KEY}' },
          models: { coder: { modalities: { input: ['text'], output: ['text'] }, attachment: false } },
        },
      },
    });
    expect(config).not.toContain(gateway.key);
    // Plain words would be a folder.
    const asked = await run(['--with', 'opencode', 'Be', 'polite.', '--', '--continue'], { env });
    expect(asked.stdout).toContain('words=--prompt=Be polite. --continue\n');
    const behind = await run(['--with', 'opencode', '--', 'folder'], { env });
    expect(behind.stdout).toContain('words=folder\n');
    const printed = await run(['--with', 'opencode', '-p', '--json', 'Be polite.', '--', '--auto'], { env });
    expect(printed.stdout).toContain('words=run --format json Be polite. --auto\n');
  });

  it('sets codex up by options, and passes the key in the environment only', async () => {
    const fake = program('codex', 'printf "%s\\n" "$@"; echo "key=$HEADGATE_API_KEY"');
    const env = { PATH: `${fake}:/usr/bin:/bin` };
    const asked = await run(['--with', 'codex', '-p', '--json', 'Be', 'polite.', '--', '--oss'], { env });
    const lines = asked.stdout.trim().split('\n');
    expect(lines.at(-1)).toBe(`key=${gateway.key}`);
    const settings = lines.filter((_, at) => lines[at - 1] === '--config');
    expect(settings).toEqual([
      'model="coder"',
      'model_provider="headgate"',
      'model_context_window=8192',
      'model_providers.headgate.name="Headgate"',
      `model_providers.headgate.base_url="${gateway.url}/v1"`,
      'model_providers.headgate.env_key="HEADGATE_API_KEY"',
      'model_providers.headgate.wire_api="responses"',
      'web_search="disabled"',
    ]);
    expect(lines.slice(2 * settings.length, -1)).toEqual(['exec', '--json', '--oss', '--', 'Be polite.']);
    const opened = await run(['--with', 'codex', '--', 'resume', '--last'], { env });
    expect(opened.stdout).toContain('web_search="disabled"\nresume\n--last\nkey=');
  });

  it('sets Claude Code up in settings that take precedence over those of the user', async () => {
    const fake = program('claude', 'printf "%s\\n" "$@"');
    const given = ['--with', 'claude', '-p', '--json', 'Be', 'polite.', '--', '--tools', 'Bash'];
    const { stdout, stderr } = await run(given, { env: { PATH: `${fake}:/usr/bin:/bin` } });
    expect(stderr).toContain('coder has a context of 8192 tokens. Agents usually need 32768 or more');
    const [flag, settings = '', ...others] = stdout.trimEnd().split('\n');
    const words = '--print --output-format stream-json --verbose --tools Bash -- Be polite.';
    expect([flag, others.join(' ')]).toEqual(['--settings', words]);
    const { env, ...set }: Json = JSON.parse(settings);
    expect(set).toEqual({ model: 'coder', apiKeyHelper: 'printenv HEADGATE_API_KEY' });
    expect(env).toMatchObject({
      ANTHROPIC_BASE_URL: gateway.url,
      ANTHROPIC_MODEL: 'coder',
      ANTHROPIC_DEFAULT_HAIKU_MODEL: 'coder',
      CLAUDE_CODE_MAX_OUTPUT_TOKENS: '2048',
      // With the user's own values, prompts would go elsewhere.
      ANTHROPIC_API_KEY: '',
      ANTHROPIC_AUTH_TOKEN: '',
      CLAUDE_CODE_USE_BEDROCK: '',
    });
    expect(stdout, 'arguments are visible to other users').not.toContain(gateway.key);
  });

  it('stores the models of each gateway separately, so no running agent sends its key elsewhere', async () => {
    const home = folders();
    fakePi(home, 'console.log(process.env.PI_CODING_AGENT_DIR)');
    const urls = [gateway.url, gateway.url.replace('127.0.0.1', 'localhost')];
    const dirs: string[] = [];
    for (const url of urls) {
      const { stdout } = await run(['-p', 'hi'], { env: { XDG_DATA_HOME: home, HEADGATE_URL: url } });
      dirs.push(stdout.trim());
    }
    const known = dirs.map((dir): Json => JSON.parse(readFileSync(join(dir, 'models.json'), 'utf8')));
    expect(known.map((one) => one.providers.headgate.baseUrl)).toEqual(urls.map((url) => `${url}/v1`));
  });

  it('exits with 130 after Ctrl-C in the agent, and with 1 when the agent fails', async () => {
    const ends = async (script: string): Promise<number | null> => {
      const home = folders();
      fakePi(home, script);
      return (await run(['-p', 'hi'], { env: { XDG_DATA_HOME: home } })).code;
    };
    expect(await ends("process.kill(process.pid, 'SIGINT'); setInterval(() => {}, 1000)")).toBe(130);
    expect(await ends('process.exit(130)')).toBe(130);
    expect(await ends('process.exit(3)')).toBe(1);
    expect(await ends("process.kill(process.pid, 'SIGTERM'); setInterval(() => {}, 1000)")).toBe(1);
  });

  it('installs pi and lets it edit a file through the gateway', async () => {
    const cwd = folders();
    writeFileSync(join(cwd, 'greeting.txt'), 'Hello, reader.\n');
    const done = await run(['-p', 'Make the greeting polite.'], { cwd, env: npmSettings });
    expect(done).toMatchObject({ code: 0, stdout: 'It is polite now.\n' });
    expect(readFileSync(join(cwd, 'greeting.txt'), 'utf8')).toBe('Good morning, reader.\n');
    // It went through the gateway, which billed it.
    const { data } = (await (await gateway.request('/v1/usage/requests')).json()) as Json;
    expect(data).toHaveLength(2);
    expect(data[0]).toMatchObject({ model: 'coder', outcome: 'completed', input_tokens: 100, output_tokens: 20 });
    expect(JSON.stringify(asked[0].messages)).toContain('Make the greeting polite.');
    const settings = join(programs, 'headgate', 'programs', 'pi-settings');
    const own =
      readdirSync(settings).find((name) => name.startsWith(new URL(gateway.url).host.replace(':', '-'))) ?? '';
    expect(readFileSync(join(settings, own, 'models.json'), 'utf8')).not.toContain(gateway.key);
    // The second time it is there.
    const again = await run(['--install-only', '--json']);
    expect(again).toMatchObject({ code: 0, stderr: '' });
    expect(existsSync(JSON.parse(again.stdout).program)).toBe(true);
  });
});
