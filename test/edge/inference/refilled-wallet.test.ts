import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { afterAll, expect, it } from 'vitest';
import {
  type Body,
  eventually,
  externalFile,
  openOrganization,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** Streams whose wallet had nothing more for a while. */

let engine: Server | null = null;
const open = new Map<string, ServerResponse>();

const bench = useInference(async () => {
  engine = createServer((incoming, response) => {
    void readText(incoming).then((body) => {
      const { user, stream }: Body = body === '' ? {} : JSON.parse(body);
      if (user === undefined) return response.writeHead(404).end('{}');
      response.writeHead(200, { 'content-type': stream === true ? 'text/event-stream' : 'application/json' });
      response.write(stream === true ? chunk(1) : ' ');
      open.set(user, response);
      return undefined;
    });
  });
  engine.listen(0, '127.0.0.1');
  await once(engine, 'listening');
  return { engines: { odd: externalFile('odd', `http://127.0.0.1:${(engine.address() as AddressInfo).port}`) } };
});
afterAll(() => {
  engine?.close();
  engine?.closeAllConnections();
});

const frame = (body: object): string => `data: ${JSON.stringify({ id: 'x', model: 'odd', ...body })}\n\n`;
const usage = (made: number): object => ({ prompt_tokens: 9, completion_tokens: made });
const chunk = (made: number): string =>
  frame({ choices: [{ index: 0, delta: { content: 'a' }, finish_reason: null }], usage: usage(made) });
const end = (made: number): string =>
  `${frame({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })}${frame({ choices: [], usage: usage(made) })}data: [DONE]\n\n`;

const opened = (user: string): Promise<ServerResponse> => eventually(async () => open.get(user) ?? null);

/** Sends running counts, and waits until the gateway has read each: it has written as many frames to its client. */
async function makeTo(response: ServerResponse, read: () => number, from: number, to: number): Promise<void> {
  for (let made = from; made <= to; made += 1) {
    const before = read();
    response.write(chunk(made));
    await eventually(async () => (read() > before ? true : null));
  }
}

/** Reads a stream while it runs; `frames` counts what has come. */
function follow(answer: Response): { readonly frames: () => number; readonly text: Promise<string> } {
  let all = '';
  const reading = async (): Promise<string> => {
    for await (const part of answer.body ?? []) all += Buffer.from(part).toString('utf8');
    return all;
  };
  return { frames: () => all.split('\n\n').length, text: reading() };
}

it('pays the rest of a stream from credit that arrived while it ran', async () => {
  const { id, key } = await openOrganization(bench.gateway, '0.0002');
  const answer = await bench.chat({ model: 'odd', stream: true, max_tokens: 3000, user: 'credited' }, { key });
  const response = await opened('credited');
  const stream = follow(answer);
  // The wallet pays for 497 tokens: near the end more is asked for, and there is none.
  await makeTo(response, stream.frames, 470, 490);
  const credit = { organization_id: id, amount: '1000', reference: 'more' };
  await bench.gateway.request('/v1/wallet/credits', { body: credit });
  await makeTo(response, stream.frames, 491, 600);
  response.end(end(600));
  expect(await stream.text).not.toContain('used up');
  expect(await bench.recordOf(answer, key)).toMatchObject({ outcome: 'completed', output_tokens: 600 });
});

it('continues a stream with what another request has released', async () => {
  const { key } = await openOrganization(bench.gateway, '0.01');
  const answer = await bench.chat({ model: 'odd', stream: true, max_tokens: 3000, user: 'stream' }, { key });
  const response = await opened('stream');
  const greedy = bench.chat({ model: 'odd', n: 8, max_tokens: 8000, user: 'greedy' }, { key });
  const other = await opened('greedy');
  const stream = follow(answer);
  await makeTo(response, stream.frames, 600, 610);
  const choices = [{ index: 0, message: { role: 'assistant', content: 'a' }, finish_reason: 'stop' }];
  other.end(JSON.stringify({ id: 'x', model: 'odd', choices, usage: usage(1) }));
  await (await greedy).text();
  await makeTo(response, stream.frames, 611, 1000);
  response.end(end(1000));
  expect(await stream.text).not.toContain('used up');
  expect(await bench.recordOf(answer, key)).toMatchObject({ outcome: 'completed', output_tokens: 1000 });
});
