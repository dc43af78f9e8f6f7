import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import * as c from './cases.js';

const { PATH } = process.env;
const program = 'node_modules/.bin/codex';

/** Runs codex on one question, with its default tools. */
async function ask(key) {
  const home = mkdtempSync(`${process.cwd()}/home-`);
  mkdirSync(`${home}/work`);
  const settings = [
    `model = ${JSON.stringify(c.model)}`,
    'model_provider = "headgate"',
    '[model_providers.headgate]',
    'name = "Headgate"',
    `base_url = ${JSON.stringify(c.baseURL)}`,
    'env_key = "HEADGATE_API_KEY"',
    'wire_api = "responses"',
    'request_max_retries = 0',
    'stream_max_retries = 0',
  ];
  writeFileSync(`${home}/config.toml`, `${settings.join('\n')}\n`);
  const args = [
    'exec',
    '--json',
    '--skip-git-repo-check',
    '--sandbox',
    'read-only',
    '-C',
    `${home}/work`,
    'Say hello.',
  ];
  try {
    return await c.runProgram(program, args, { PATH, HOME: home, CODEX_HOME: home, HEADGATE_API_KEY: key });
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

/** The last error that codex reports, otherwise the end of its output. */
function failureOf({ stdout, stderr }) {
  return /"message":"((?:[^"\\]|\\.)*)"/.exec(stdout)?.[1] ?? stderr.slice(-200);
}

await c.runCases({
  async 'responses stream'() {
    const result = await ask(c.apiKey);
    c.expect(result.code === 0 && result.stdout.includes('"agent_message"'), failureOf(result));
  },
  async 'wrong key'() {
    const result = await ask(c.wrongKey);
    c.expect(result.code !== 0 && /401/.test(result.stdout + result.stderr), failureOf(result));
  },
});
