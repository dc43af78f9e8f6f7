import { mkdtempSync, rmSync } from 'node:fs';
import * as c from './cases.js';

const { PATH } = process.env;
const program = `${process.cwd()}/node_modules/.bin/claude`;

/** Runs Claude Code on one question. */
async function ask(key) {
  const home = mkdtempSync(`${process.cwd()}/home-`);
  const env = {
    PATH,
    HOME: home,
    ANTHROPIC_BASE_URL: c.address,
    ANTHROPIC_AUTH_TOKEN: key,
    ANTHROPIC_MODEL: c.model,
    ANTHROPIC_SMALL_FAST_MODEL: c.model,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    CLAUDE_CODE_MAX_RETRIES: '0',
  };
  try {
    return await c.runProgram(program, ['--print', '--output-format', 'json', 'Say hello.'], env);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

const resultOf = ({ stdout, stderr }) => {
  try {
    return JSON.parse(stdout);
  } catch {
    return { is_error: true, result: `${stdout}${stderr}`.slice(-200) };
  }
};

await c.runCases({
  async 'messages stream'() {
    const { is_error: failed, result } = resultOf(await ask(c.apiKey));
    c.expect(!failed, result);
    c.expectText(result);
  },
  async 'wrong key'() {
    const { is_error: failed, result } = resultOf(await ask(c.wrongKey));
    c.expect(failed && /401/.test(result), result);
  },
});
