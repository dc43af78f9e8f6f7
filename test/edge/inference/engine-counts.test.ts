import { afterAll, describe, expect, it } from 'vitest';
import { type ByteServer, startByteServer } from '#test/proxy/byte-server.ts';
import { externalFile, framesOf, openOrganization, useInference } from '#test/inference/inference-gateway.ts';

const outputTokensSaid = 900_000_000;

/** Frames of an engine that counts wrongly: one token, and a sum beyond all reason. */
const frames = [
  { id: 'x', model: 'chat', choices: [{ index: 0, delta: { content: 'Hi' }, finish_reason: null }] },
  { id: 'x', model: 'chat', choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] },
  { id: 'x', model: 'chat', choices: [], usage: { prompt_tokens: 7, completion_tokens: outputTokensSaid } },
];
const body = `${frames.map((frame) => `data: ${JSON.stringify(frame)}\n\n`).join('')}data: [DONE]\n\n`;
const head = `HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: ${body.length}\r\n\r\n`;

let engine: ByteServer | null = null;

const bench = useInference(async () => {
  engine = await startByteServer({ transport: 'tcp', answer: ({ socket }) => void socket.write(head + body) });
  return { engines: { chat: externalFile('chat', `http://127.0.0.1:${engine.endpoint.port}`) } };
});
afterAll(() => engine?.close());

describe('an engine that counts more tokens than a request may have', () => {
  it("charges the wallet no more than the request's ceiling", async () => {
    const { key } = await openOrganization(bench.gateway, '1000');
    const answer = await bench.chat({ stream: true, max_tokens: 1000 }, { key });
    expect(framesOf(await answer.text()).at(-1)).toBe('[DONE]');
    const record = await bench.recordOf(answer, key);
    expect(record).toMatchObject({ outcome: 'completed', output_tokens: 1000, written_off: '0' });
    expect(Number(record.cost)).toBeLessThan(0.01);
    const wallet = await bench.wallet(key);
    expect(Number(wallet.balance)).toBeCloseTo(1000 - Number(record.cost), 9);
  });
});
