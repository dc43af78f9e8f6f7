import { once } from 'node:events';
import type { Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { head, hear, serveCustomer, tell, until, useVictim } from './attacked-gateway.ts';

const victim = useVictim({ env: { HEADGATE_ANSWER_STALL_SECONDS: '3' } });
const open: Socket[] = [];

afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy();
});

function connect(to?: 'metrics'): Socket {
  const socket = victim().connect(to);
  open.push(socket);
  return socket;
}

/** 1.5 MB without a key. */
const asset = head('GET', '/docs/assets/swagger-ui-bundle.js');

describe('pipelined requests whose answers are not read', () => {
  it('use little memory, and leave a customer every answer', async () => {
    victim().peakMiB();
    const before = victim().memoryMiB();
    for (let count = 0; count < 5; count += 1) connect().pause().write(asset.repeat(1000));
    await serveCustomer(victim(), 'while 5,000 pipelined assets are not read');
    const peak = victim().peakMiB();
    tell(`memory: ${before} MiB before, at most ${peak} MiB`);
    expect(peak - before).toBeLessThan(200);
  });

  it('use little memory on the metrics port too', async () => {
    victim().peakMiB();
    const before = victim().memoryMiB();
    for (let count = 0; count < 5; count += 1) connect('metrics').pause().write(head('GET', '/metrics').repeat(1000));
    await serveCustomer(victim(), 'while 5,000 pipelined metrics are not read');
    const peak = victim().peakMiB();
    tell(`memory: ${before} MiB before, at most ${peak} MiB`);
    expect(peak - before).toBeLessThan(100);
  });

  it('have their connection closed', async () => {
    const sockets = Array.from({ length: 20 }, () => connect());
    await until(() => victim().holds(sockets) === sockets.length);
    for (const socket of sockets) socket.pause().write(asset.repeat(16));
    // Each is served, and takes what a buffer holds.
    await Promise.all(sockets.map((socket) => once(socket, 'readable')));
    await until(() => victim().holds(sockets) === 0);
    expect(sockets.some(({ destroyed }) => destroyed)).toBe(false);
  });
});

describe('pipelined requests of one connection', () => {
  const small = head('GET', '/v1/pricing');
  const answersIn = (text: string): string[] => text.match(/HTTP\/1\.1 \d{3}/g) ?? [];

  it('are answered in order, sixteen at once', async () => {
    const socket = connect();
    const heard = hear(socket);
    socket.write(small.repeat(16));
    await until(() => answersIn(heard.text).length === 16);
    expect(new Set(answersIn(heard.text))).toEqual(new Set(['HTTP/1.1 200']));
    socket.write(small.repeat(16));
    await until(() => answersIn(heard.text).length === 32);
    expect(heard.closed).toBe(false);
  });

  it('keep their own answers when a later one expects 100-continue', async () => {
    const key = { authorization: `Bearer ${victim().attacker.managementKey}` };
    const body = '{"name":"x"}';
    const expecting = { ...key, 'content-length': body.length, expect: '100-continue' };
    const text = '{"model":"chat","messages":[{"role":"user","content":"Hello"}],"max_tokens":2}';
    const chat = { ...key, 'content-type': 'application/json', 'content-length': text.length };
    const socket = connect();
    const heard = hear(socket);
    socket.write(head('POST', '/v1/chat/completions', chat) + text + head('POST', '/v1/nothing', expecting) + body);
    await until(() => heard.text.includes('Nothing exists at this path.'));
    expect(answersIn(heard.text)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 404']);
    const alone = connect();
    const heardAlone = hear(alone);
    alone.write(head('POST', '/v1/nothing', expecting) + body);
    await until(() => heardAlone.text.includes('Nothing exists at this path.'));
    expect(answersIn(heardAlone.text)).toEqual(['HTTP/1.1 100', 'HTTP/1.1 404']);
  });

  it('return 503 beyond sixteen, and the connection is closed', async () => {
    const socket = connect();
    const heard = hear(socket);
    socket.write(small.repeat(20));
    await until(() => heard.closed);
    const answers = answersIn(heard.text);
    expect(answers).toHaveLength(17);
    expect(answers.slice(0, 16)).toEqual(Array.from({ length: 16 }, () => 'HTTP/1.1 200'));
    expect(answers[16]).toBe('HTTP/1.1 503');
    const refusal = heard.text.slice(heard.text.lastIndexOf('HTTP/1.1 503'));
    expect(refusal).toMatch(/connection: close/i);
    expect(refusal).toMatch(/x-request-id: /i);
    expect(refusal).toContain('"code":"overloaded"');
    expect(refusal).toContain('16 unfinished requests');
  });
});
