import { afterAll, describe, expect, it } from 'vitest';
import { type ByteServer, startByteServer } from '#test/proxy/byte-server.ts';
import { chatPath, type Body, externalFile, json, useInference } from '#test/inference/inference-gateway.ts';

let engine: ByteServer | null = null;
const jsonBody =
  '{"id":"x","model":"m","choices":[{"index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}';
const jsonAnswer = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${jsonBody.length}\r\n\r\n${jsonBody}`;

const bench = useInference(async () => {
  engine = await startByteServer({ transport: 'tcp', answer: ({ socket }) => void socket.write(jsonAnswer, 'latin1') });
  const url = `http://127.0.0.1:${engine.endpoint.port}`;
  const overrides = 'overrides: { max_tokens: 7, top_p: null, skip_special_tokens: null, seed: 3 }';
  return {
    engines: {
      chat: externalFile('chat', url),
      usual: externalFile('usual', url, {
        lines: ['defaults: { temperature: 0.2, max_tokens: 9, stop: ["é"] }', 'aliases: [Usual]'],
      }),
      fixed: externalFile('fixed', url, { lines: [overrides] }),
    },
  };
});
afterAll(() => engine?.close());

/** Sends a body as text, and returns the body that the engine received. */
async function forwarded(body: string, path = chatPath): Promise<string> {
  const headers = { ...json, authorization: `Bearer ${bench.gateway.key}` };
  const answer = await fetch(new URL(path, bench.gateway.url), { method: 'POST', headers, body });
  expect([answer.status, answer.status === 200 ? '' : await answer.text()]).toEqual([200, '']);
  const last = engine?.requests.findLast(({ head }) => head.startsWith('POST '));
  return Buffer.from(last?.body ?? '', 'latin1').toString('utf8');
}

const messages = '"messages" : [{"role":"user","content":"h\\u00e9 é"}]';

describe('defaults in an engine file', () => {
  it('are added where the client sent none, before the other bytes', async () => {
    expect(await forwarded(`{ ${messages},"model":"Usual" }`)).toBe(
      `{ "max_tokens":9,"temperature":0.2,"stop":["é"],${messages},"model":"usual" }`,
    );
  });

  it('do not replace what the client sent, except null', async () => {
    const own = `{${messages},"model":"usual","temperature":1.50,"max_completion_tokens":5,"stop":null}`;
    expect(await forwarded(own)).toBe(own.replace('"stop":null', '"stop":["é"]'));
  });

  it('reach requests of any size, and no other model', async () => {
    const large = `{"model":"usual","temperature":1,"messages":[{"role":"user","content":"${'é '.repeat(2)}${' '.repeat(300_000)}"}]}`;
    expect(await forwarded(large)).toBe(large.replace('{"model"', '{"max_tokens":9,"stop":["é"],"model"'));
    const other = `{${messages},"model":"chat"}`;
    expect(await forwarded(other)).toBe(other);
  });
});

describe('overrides in an engine file', () => {
  it('are set whatever the client sent, and null removes a field', async () => {
    const given = `{"top_p":0.5, "model":"fixed", "seed":1, ${messages}, "max_completion_tokens":5, "skip_special_tokens":false, "top_p2":1}`;
    expect(await forwarded(given)).toBe(`{"max_tokens":7,"model":"fixed", "seed":3, ${messages}, "top_p2":1}`);
    const atEnd = `{"model":"fixed", ${messages} , "max_tokens":500 ,"top_p":1, "skip_special_tokens":true }`;
    expect(await forwarded(atEnd)).toBe(`{"seed":3,"model":"fixed", ${messages} , "max_tokens":7 }`);
  });

  it('set the output limit by the name of the route', async () => {
    expect(await forwarded('{"model":"fixed","input":"a","max_output_tokens":50}', '/v1/responses')).toContain(
      '"max_output_tokens":7',
    );
  });

  it('decide the cost that is reserved', async () => {
    const headers = { 'x-headgate-dry-run': 'true' };
    const ask = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 500 };
    const [fixed, plain] = await Promise.all(
      ['fixed', 'chat'].map(async (model): Promise<Body> => {
        return (await bench.post(chatPath, { ...ask, model }, { headers })).json();
      }),
    );
    // 493 tokens fewer, at 0.40 USD per million; the added fields are a few bytes of input.
    expect(Number(plain.worst_cost) - Number(fixed.worst_cost)).toBeGreaterThan(480 * 4e-7);
  });
});
