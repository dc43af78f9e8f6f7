import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { type DockerGate, startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { policy } from './container-decisions.ts';

/** Requests to the Docker engine, as they come there. */
const received: { line: string; headers: string[]; body: string }[] = [];
let engine: Server | null = null;
let gate: DockerGate | null = null;
const dir = mkdtempSync(join(tmpdir(), 'hg-gate-bytes-'));

beforeAll(async () => {
  const socketPath = join(dir, 'docker.sock');
  engine = createServer((incoming, answer) => {
    void text(incoming).then((body) => {
      const { method = '', url = '', headers } = incoming;
      received.push({ line: `${method} ${url}`, headers: Object.keys(headers).toSorted(), body });
      const labels = url.includes('shop') ? {} : { 'headgate.managed': 'true' };
      answer.setHeader('x-of-the-engine', 'a');
      answer.end(JSON.stringify({ Id: 'c0ffee', Config: { Labels: labels } }));
    });
  }).listen(socketPath);
  await once(engine, 'listening');
  gate = await startDockerGate({ host: '127.0.0.1', port: 0, socketPath, policy, log: createLog('silent') });
});
afterAll(async () => {
  await gate?.close();
  engine?.close();
  rmSync(dir, { recursive: true, force: true });
});
beforeEach(() => void received.splice(0));

/** Sends bytes. @returns everything that was answered until the door closed the connection */
async function send(bytes: string | Buffer): Promise<string> {
  const socket = connect(gate?.port ?? 0, '127.0.0.1');
  socket.write(bytes);
  const parts: Buffer[] = [];
  socket.on('data', (part: Buffer) => parts.push(part));
  socket.on('error', () => undefined);
  await once(socket, 'close');
  return Buffer.concat(parts).toString();
}

const kill = 'POST /v1.41/containers/shop/stop HTTP/1.1\r\nHost: docker\r\n\r\n';
const head = (line: string, ...headers: string[]): string =>
  [`${line} HTTP/1.1`, 'Host: docker', 'Connection: close', ...headers, '', ''].join('\r\n');
const list = '/v1.41/containers/json';

describe('the Docker gate: bytes', () => {
  it.each([
    ['two lengths', head(`GET ${list}`, 'Content-Length: 0', `Content-Length: ${kill.length}`) + kill],
    [
      'a length and chunks',
      head(`GET ${list}`, `Content-Length: ${kill.length}`, 'Transfer-Encoding: chunked') + `0\r\n\r\n${kill}`,
    ],
    [
      'chunks, written twice',
      head(`GET ${list}`, 'Transfer-Encoding: chunked', 'Transfer-Encoding: x') + `0\r\n\r\n${kill}`,
    ],
    ['chunks that are none', head(`GET ${list}`, 'Transfer-Encoding: xchunked') + kill],
    ['a length that is none', head(`GET ${list}`, 'Content-Length: +1') + kill],
    ['a call as a body', head(`GET ${list}`, `Content-Length: ${kill.length}`) + kill],
    ['a call after a call', head(`GET ${list}`).replace('Connection: close\r\n', '') + kill],
    ['lines that end otherwise', head(`GET ${list}`).replaceAll('\r\n', '\n') + kill],
    ['a line in a header', head(`GET ${list}`, 'X-A: a\rPOST /containers/shop/stop HTTP/1.1')],
    ['a folded header', head(`GET ${list}`, 'X-A: a', ' Content-Length: 5') + kill],
    ['a space before a colon', head(`GET ${list}`, 'Content-Length : 0') + kill],
    ['a line in the address', `GET ${list}\r\nPOST /containers/shop/stop HTTP/1.1\r\n\r\n`],
    ['an address with a host', head('POST http://docker/v1.41/containers/shop/stop')],
    ['an address of two', head('CONNECT docker:80') + kill],
    ['another protocol', head(`GET ${list}`, 'Connection: Upgrade', 'Upgrade: h2c') + kill],
    ['another protocol from the first byte', `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${kill}`],
    ['an engine with Expect: 100-continue', head(`POST /v1.41/containers/shop/stop`, 'Expect: 100-continue')],
    [
      'a terminal',
      head('POST /v1.41/containers/a/attach?stream=1&stdin=1', 'Connection: Upgrade', 'Upgrade: tcp') + kill,
    ],
    ['another method by a header', head(`GET ${list}`, 'X-HTTP-Method-Override: DELETE')],
    [
      'a path that is no text',
      Buffer.from(`GET /v1.41/containers/\xff\xfe/json HTTP/1.1\r\nHost: a\r\n\r\n`, 'latin1'),
    ],
  ])('forwards only what it parses itself for %s', async (_what, bytes) => {
    expect(await send(bytes)).toMatch(/^(?:HTTP\/1\.1 |$)/);
    for (const { line, headers, body } of received) {
      expect(line).toMatch(
        /^GET \/v1\.41\/containers\/(?:json\?filters=%7B%22label%22%3A%5B%22headgate\.managed%22%5D%7D|shop\/json)$/,
      );
      expect(headers).toEqual(['connection', 'host']);
      expect(body).toBe('');
    }
  });

  it('forwards no header of the caller, except the registry login for a pull', async () => {
    const more = [
      'X-Registry-Auth: bG9naW4=',
      'X-Registry-Config: e30=',
      'Cookie: a',
      'Authorization: b',
      'X-Forwarded-For: c',
    ];
    await send(head(`GET ${list}`, ...more));
    await send(head('POST /v1.41/images/create?fromImage=vllm/a&tag=v1', ...more));
    expect(received.map(({ headers }) => headers)).toEqual([
      ['connection', 'host'],
      ['connection', 'content-length', 'host', 'x-registry-auth'],
    ]);
  });

  it('attaches to a container with our label by its id, without a way to write to it', async () => {
    const asked = head('POST /v1.41/containers/a/attach?stream=1&stdout=1', 'Content-Length: 0');
    expect(await send(asked)).not.toContain('x-of-the-engine');
    expect(received.map(({ line }) => line)).toEqual([
      'GET /v1.41/containers/a/json',
      'POST /v1.41/containers/c0ffee/attach?stream=1&stdout=1',
    ]);
  });

  it('returns 413 for a body larger than any that a gateway sends', async () => {
    const body = `{"a":"${'x'.repeat(1_100_000)}"}`;
    const asked = head('POST /v1.41/containers/create?name=headgate-a-0123456789', `Content-Length: ${body.length}`);
    expect(await send(asked + body)).toMatch(/^HTTP\/1\.1 413 /);
    expect(received).toEqual([]);
  });
});
