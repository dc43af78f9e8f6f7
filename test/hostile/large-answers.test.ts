import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { afterAll, expect, it } from 'vitest';
import { engineFile } from '../start/kit.ts';
import { serveCustomer, tell, useVictim } from './kit.ts';

/** An engine that answers 100 MB, as 1,200 inputs make with a model of 4,096 dimensions. */
const engineProgram = `
const { createServer } = require('node:http');
const { parentPort } = require('node:worker_threads');
const { Readable } = require('node:stream');
const numbers = Array.from({ length: 4096 }, (_, index) => Math.sin(index) / 64).join(',');
const vector = Buffer.from('{"object":"embedding","index":0,"embedding":[' + numbers + ']}');
const comma = Buffer.from(',');
function* parts() {
  yield Buffer.from('{"id":"e","object":"list","model":"large","data":[');
  for (let sent = 0; sent < 1200; sent += 1) yield sent === 0 ? vector : Buffer.concat([comma, vector]);
  yield Buffer.from('],"usage":{"prompt_tokens":2048,"total_tokens":2048,"completion_tokens":0}}');
}
const server = createServer((incoming, answer) => {
  incoming.resume();
  answer.writeHead(200, { 'content-type': 'application/json' });
  if (incoming.method === 'POST') Readable.from(parts()).pipe(answer);
  else answer.end('{"data":[]}');
});
server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
`;
const engine = new Worker(engineProgram, { eval: true });
const [port] = (await once(engine, 'message')) as [number];
afterAll(async () => {
  await engine.terminate();
});
const large = `version: 1
id: large
name: Large
hugging_face_id: test/large
task_type: embedding
context_length: 8192
pricing: { input_per_million: 0.10, cached_input_per_million: 0, output_per_million: 0 }
driver: external
url: http://127.0.0.1:${port}
`;
const victim = useVictim({ engines: { chat: engineFile('chat'), large } });

/** Reads an answer as fast as it comes and keeps nothing of it, in a process of its own. @returns its status */
async function ask(): Promise<string> {
  const { url, attacker } = victim();
  const headers = ['-H', `authorization: Bearer ${attacker.key}`, '-H', 'content-type: application/json'];
  const body = ['-d', '{"model":"large","input":["a"]}'];
  const form = ['-s', '-o', '/dev/null', '-w', '%{http_code}', ...headers, ...body];
  const { stdout } = await promisify(execFile)('curl', [...form, `${url}/v1/embeddings`]);
  return stdout;
}

it('ten large answers at once take no more memory than a key may have, and leave a customer his', async () => {
  victim().peakMiB();
  const before = victim().memoryMiB();
  const attack = Promise.all(Array.from({ length: 10 }, ask));
  await serveCustomer(victim(), 'while ten answers of 100 MB are made', 100);
  const statuses = await attack;
  const peak = victim().peakMiB();
  tell(`${statuses.join(' ')}; memory: ${before} MiB before, at most ${peak} MiB`);
  expect(statuses).toContain('200');
  expect(peak - before).toBeLessThan(1000);
});
