import { type ClientRequest, request } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, expect, it } from 'vitest';
import { chatBody, chatPath, eventually, externalFile, json, useInference } from '#test/inference/inference-gateway.ts';

/** Node keeps texts of a megabyte outside of the heap, and frees their bytes later than the texts. */
const promptBytes = 800_000;
const streams = 40;

/** Answers every request with the beginning of a stream, and keeps nothing of what it was sent. */
const engine = createServer((socket) => {
  let length = Number.NaN;
  socket.on('error', () => undefined);
  socket.on('data', (bytes: Buffer) => {
    if (Number.isNaN(length)) {
      const head = bytes.subarray(0, bytes.indexOf('\r\n\r\n') + 4).toString('latin1');
      length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0) + head.length;
    }
    length -= bytes.length;
    if (length === 0) begin(socket);
  });
});

function begin(socket: Socket): void {
  const frame = { id: 'x', model: 'engine', choices: [{ index: 0, delta: { content: 'x' }, finish_reason: null }] };
  const chunk = `data: ${JSON.stringify(frame)}\n\n`;
  const head = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';
  socket.write(`${head}${chunk.length.toString(16)}\r\n${chunk}\r\n`);
}

const bench = useInference(async () => {
  const { port } = (await listening(engine)).address() as AddressInfo;
  const lines = ['upstream_model: the/engine-has-a-name-of-its-own'];
  return { engines: { long: externalFile('a-model-with-a-long-name', `http://127.0.0.1:${port}`, { lines }) } };
});
afterAll(() => {
  engine.close();
});

function listening(server: Server): Promise<Server> {
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve(server));
  });
}

/** Resolves with the first part of the answer; the stream stays open. */
function open(body: Buffer): Promise<{ readonly sent: ClientRequest; readonly status: number; readonly text: string }> {
  const { url, key } = bench.gateway;
  const headers = { ...json, authorization: `Bearer ${key}`, 'content-length': body.length };
  return new Promise((resolve, reject) => {
    const sent = request(`${url}${chatPath}`, { method: 'POST', headers, agent: false }, (answer) => {
      answer.on('error', () => undefined);
      answer.once('data', (bytes: Buffer) => {
        resolve({ sent, status: answer.statusCode ?? 0, text: bytes.toString() });
      });
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

/** Bytes of the heap that something still refers to. */
function liveHeapBytes(): number {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  if (typeof collect === 'function') collect();
  return process.memoryUsage().heapUsed;
}

it('frees the prompt of a stream at its first frame', async () => {
  const content = 'word '.repeat(promptBytes / 5);
  const body = Buffer.from(
    JSON.stringify(
      chatBody({
        model: 'a-model-with-a-long-name',
        stream: true,
        messages: [{ role: 'user', content }],
        a_member_with_a_long_name: null,
      }),
    ),
  );
  const first = await open(body);
  const before = liveHeapBytes();
  const opened = await Promise.all(Array.from({ length: streams }, () => open(body)));
  for (const { status, text } of [first, ...opened]) {
    expect(status).toBe(200);
    expect(text).toContain('"model":"a-model-with-a-long-name"');
  }
  await eventually(() => Promise.resolve(liveHeapBytes() - before < (promptBytes * streams) / 4));
  for (const { sent } of [first, ...opened]) sent.on('error', () => undefined).destroy();
});
