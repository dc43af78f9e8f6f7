import { fork, type ChildProcess } from 'node:child_process';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { tcpEndpoint } from '#base/net/endpoint.ts';
import { createEngineClient } from '#core/engine-client/engine-client.ts';
import { pin } from './processes.ts';
import { median } from './statistics.ts';

/**
 * `npm run bench:proxy`: CPU time of this process, user and system, for reading answers of an engine on another core, with
 * the client of src/core/engine-client, with undici's Pool.dispatch and with Node's fetch. All of them do what the gateway
 * needs of a client: the bytes of each read as latin1. Rounds of the three alternate in one run; the figures are
 * medians, the ratios those of the rounds.
 */

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    requests: { type: 'string', default: '4000' },
    streams: { type: 'string', default: '200' },
    frames: { type: 'string', default: '60' },
  },
});
const rounds = Number(values.rounds);
const [requests, streams, frames] = [Number(values.requests), Number(values.streams), Number(values.frames)];
const connections = 32;

const path = '/v1/chat/completions';
const messages = [
  { role: 'user', content: 'The water is patient and the stone only looks as if it were. '.repeat(31) },
];
const jsonBody = JSON.stringify({ model: 'bench', messages, max_tokens: 64 });
const streamBody = JSON.stringify({
  model: 'bench',
  messages,
  stream: true,
  bench: { frames, firstMs: 20, everyMs: 25 },
});
const endMark = 'data: [DONE]';

/** Resolves with the text of an answer. */
type Ask = (body: string) => Promise<string>;

function ownClient(port: number): Ask {
  const limitMs = 60_000;
  const client = createEngineClient({
    firstByteTimeoutMs: limitMs,
    idleTimeoutMs: limitMs,
    connectTimeoutMs: limitMs,
    idleSocketMs: limitMs,
    maxHeaderBytes: 8192,
  });
  const endpoint = tcpEndpoint('127.0.0.1', port);
  const headerLines = 'Content-Type: application/json\r\n';
  return (body) =>
    new Promise((resolve, reject) => {
      let text = '';
      client.call(
        endpoint,
        { method: 'POST', path, headerLines, body },
        {
          onHead: () => undefined,
          onData: (read) => void (text += read),
          onEnd: () => resolve(text),
          onFault: ({ kind }) => reject(new Error(kind)),
        },
      );
    });
}

function undiciClient(port: number): Ask {
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: null, pipelining: 1 });
  const headers = { 'content-type': 'application/json' };
  return (body) =>
    new Promise((resolve, reject) => {
      let text = '';
      pool.dispatch(
        { path, method: 'POST', headers, body },
        {
          onRequestStart: () => undefined,
          onResponseStart: () => undefined,
          onResponseData: (_, chunk) => void (text += chunk.toString('latin1')),
          onResponseEnd: () => resolve(text),
          onResponseError: (_, error) => reject(error),
        },
      );
    });
}

function fetchClient(port: number): Ask {
  const headers = { 'content-type': 'application/json' };
  return async (body) => {
    const { body: answer } = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', headers, body });
    let text = '';
    for await (const { buffer, byteOffset, length } of answer ?? []) {
      text += Buffer.from(buffer, byteOffset, length).toString('latin1');
    }
    return text;
  };
}

/** Microseconds of CPU that some work takes. */
async function cpuOf(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return user + system;
}

async function askJson(ask: Ask): Promise<number> {
  const times = Math.ceil(requests / connections);
  const caller = async (): Promise<void> => {
    for (let time = 0; time < times; time += 1) {
      if (!(await ask(jsonBody)).endsWith('}')) throw new Error('a JSON answer is not whole');
    }
  };
  const used = await cpuOf(() => Promise.all(Array.from({ length: connections }, caller)));
  return used / (times * connections);
}

/** Per frame, all of them open at once. */
async function askStreams(ask: Ask): Promise<number> {
  const caller = async (): Promise<void> => {
    if (!(await ask(streamBody)).includes(endMark)) throw new Error('a stream is not whole');
  };
  const used = await cpuOf(() => Promise.all(Array.from({ length: streams }, caller)));
  return used / (streams * frames);
}

function startEngine(): Promise<{ readonly child: ChildProcess; readonly port: number }> {
  const child = fork(new URL('engine.ts', import.meta.url));
  return new Promise((resolve, reject) => {
    child.once('message', ({ port }: { port: number }) => resolve({ child, port }));
    child.once('exit', (code) => reject(new Error(`the engine ended with ${String(code)}`)));
  });
}

async function compare(title: string, clients: ReadonlyMap<string, Ask>, measure: (ask: Ask) => Promise<number>) {
  const found = new Map([...clients.keys()].map((name) => [name, [] as number[]]));
  for (let round = -1; round < rounds; round += 1) {
    for (const [name, ask] of clients) {
      const micros = await measure(ask);
      // Once over all of them first, so that nobody is measured while his code is compiled.
      if (round >= 0) found.get(name)?.push(micros);
    }
  }
  const own = found.get('proxy') ?? [];
  for (const [name, micros] of found) {
    const ratio = median(micros.map((value, round) => value / (own[round] ?? Number.NaN)));
    console.log(
      `${title.padEnd(32)}${name.padEnd(8)}${median(micros).toFixed(1).padStart(8)} µs${ratio.toFixed(2).padStart(8)}×`,
    );
  }
}

const { child, port } = await startEngine();
pin(process.pid, 1);
pin(child.pid ?? 0, 0);
const clients = new Map([
  ['proxy', ownClient(port)],
  ['undici', undiciClient(port)],
  ['fetch', fetchClient(port)],
]);
await compare('CPU per JSON request', clients, askJson);
await compare(`CPU per frame, ${streams} streams`, clients, askStreams);
child.kill();
process.exit(0);
