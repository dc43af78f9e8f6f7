import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createAnthropic } from '@ai-sdk/anthropic';
import { generateText } from 'ai';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { freePort } from '#test/free-port.ts';
import { type Body, eventually, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { answers } from './caddy.ts';

/** The lines of the chapter on clients for clients that send their key as x-api-key. */

const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));
const chapter = new URL('../../../src/edge/inference/clients.md', import.meta.url);
const [, recipe = ''] = /^```\n(@.*?)^```$/ms.exec(readFileSync(chapter, 'utf8')) ?? [];

let caddy: ChildProcess;
let url = '';

beforeEach(async () => {
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  caddy = spawn('caddy', ['run', '--config', '-', '--adapter', 'caddyfile'], { stdio: ['pipe', 'ignore', 'pipe'] });
  let said = '';
  caddy.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const site = `${url} {\n\tbind 127.0.0.1\n${recipe}\treverse_proxy ${bench.gateway.url}\n}`;
  caddy.stdin?.end(`{\n\tadmin off\n}\n${site}\n`);
  await eventually(() => {
    if (caddy.exitCode !== null) throw new Error(said);
    return answers(port);
  });
});
afterEach(async () => {
  caddy.kill('SIGKILL');
  if (caddy.exitCode === null && caddy.signalCode === null) await once(caddy, 'exit');
});

it('turn x-api-key into a Bearer token, and keep a Bearer token that is there', async () => {
  const { key } = bench.gateway;
  const ask = async (headers: Record<string, string>): Promise<Body> => {
    const answer = await fetch(`${url}/v1/models`, { headers });
    return { status: answer.status, ...((await answer.json()) as object) };
  };
  expect(await ask({ 'x-api-key': key })).toMatchObject({ status: 200, data: [{ id: 'chat' }] });
  expect(await ask({ 'x-api-key': 'unused', authorization: `Bearer ${key}` })).toMatchObject({ status: 200 });
  expect(await ask({ 'x-api-key': key, authorization: 'Bearer sk-hg-none' })).toMatchObject({ status: 401 });
  expect(await ask({ 'x-api-key': 'sk-hg-none' })).toMatchObject({ status: 401 });
  expect(await ask({})).toMatchObject({ status: 401 });
  // This client sends apiKey as x-api-key.
  const model = createAnthropic({ baseURL: `${url}/v1`, apiKey: key })('chat');
  expect((await generateText({ model, prompt: 'Hello', maxRetries: 0 })).text).toMatch(/./);
});
