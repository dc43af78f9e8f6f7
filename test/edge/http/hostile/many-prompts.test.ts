import { describe, expect, it } from 'vitest';
import { engineFile } from '#test/programs/gateway-process.ts';
import { head, hear, post, refusalOf, serveCustomer, stubborn, tell, until, useVictim } from './attacked-gateway.ts';

const embedding = engineFile('embed', { flags: ['--runner', 'pooling', '--convert', 'embed'] });
const rerank = engineFile('rank', { flags: ['--runner', 'pooling', '--convert', 'classify'] });
const victim = useVictim({
  engines: {
    chat: engineFile('chat'),
    embed: embedding.replace('task_type: chat', 'task_type: embedding'),
    rank: rerank.replace('task_type: chat', 'task_type: rerank'),
  },
  env: { HEADGATE_ANSWER_STALL_SECONDS: '5' },
});

const list = (element: string, count: number): string => `[${`${element},`.repeat(count - 1)}${element}]`;

function ask(path: string, fields: string) {
  return post(victim().url, `/v1/${path}`, victim().attacker.key, `{${fields}}`);
}

describe('a request with many prompts', () => {
  it.each([
    ['completions', `"model":"chat","prompt":${list('"a"', 129)}`, 'prompt'],
    ['completions', `"model":"chat","n":2,"prompt":${list('"a"', 65)}`, 'prompt'],
    ['completions', `"model":"chat","n":8,"prompt":${list('[1,2]', 17)}`, 'prompt'],
    ['completions', `"model":"chat","n":129,"prompt":"a"`, 'n'],
    ['chat/completions', `"model":"chat","n":129,"messages":[]`, 'n'],
    ['embeddings', `"model":"embed","input":${list('"a"', 8193)}`, 'input'],
    ['embeddings', `"model":"embed","input":${list('[1]', 8193)}`, 'input'],
    ['embeddings', `"model":"embed","input":${list('[]', 4_000_000)}`, 'input'],
    ['embeddings', `"model":"embed","input":${list('[{}]', 2049)}`, 'input'],
    ['embeddings', `"model":"embed","messages":${list('[]', 2049)}`, 'messages'],
    ['embeddings', `"model":"embed","messages":[${' '.repeat(100)}${list('[]', 2049).slice(1)}`, 'messages'],
    ['rerank', `"model":"rank","query":"a","documents":${list('"a"', 2049)}`, 'documents'],
    ['score', `"model":"rank","queries":"a","items":${list('"a"', 2049)}`, 'items'],
  ])('returns 400 invalid_value above the limit: %s with %.60s', async (path, fields, param) => {
    expect(refusalOf(await ask(path, fields))).toEqual({ status: 400, code: 'invalid_value', param });
  });

  it('is served at exactly the limit', async () => {
    for (const [path, fields] of [
      ['completions', `"model":"chat","max_tokens":1,"prompt":${list('"a"', 128)}`],
      ['completions', `"model":"chat","max_tokens":1,"prompt":${list('1', 300)}`],
      ['embeddings', `"model":"embed","input":${list('1', 3000)}`],
      ['embeddings', `"model":"embed","input":${list('"a"', 8192)}`],
      ['rerank', `"model":"rank","query":"a","documents":${list('"a"', 300)}`],
    ] as const) {
      const { status, text } = await ask(path, fields);
      expect(status, `${path} ${text.slice(0, 200)}`).toBe(200);
    }
  });
});

it('uses little memory and delays no other request with eight million prompts and a client that leaves', async () => {
  const body = `{"model":"chat","stream":true,"prompt":${list('""', 8_300_000)}}`;
  const { key } = victim().attacker;
  victim().peakMiB();
  const before = victim().memoryMiB();
  const attack = (async () => {
    for (let count = 0; count < 6; count += 1) {
      const socket = stubborn(victim().url);
      const heard = hear(socket);
      const type = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
      socket.write(head('POST', '/v1/completions', { ...type, 'content-length': body.length }));
      socket.write(body);
      await until(() => heard.text.includes('\r\n\r\n'));
      expect(heard.text).toMatch(/^HTTP\/1\.1 400 /);
      socket.destroy();
    }
  })();
  await serveCustomer(victim(), 'while requests of 8,300,000 prompts come', 100);
  await attack;
  const peak = victim().peakMiB();
  tell(`memory: ${before} MiB before, at most ${peak} MiB`);
  expect(peak - before).toBeLessThan(400);
});
