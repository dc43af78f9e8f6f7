import type { Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { head, hear, type Heard, serveCustomer, stubborn, tell, until, useVictim } from './attacked-gateway.ts';

const victim = useVictim({ env: { HEADGATE_HEADERS_SECONDS: '1', HEADGATE_BODY_STALL_SECONDS: '1' } });
const connections = 300;
const open: Socket[] = [];

afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy();
});

function openMany(first: string): Heard[] {
  return Array.from({ length: connections }, () => {
    const socket = stubborn(victim().url);
    open.push(socket);
    if (first !== '') socket.write(first);
    return hear(socket);
  });
}

const json = { 'content-type': 'application/json', 'content-length': 100 };
const body = (key: string): string => head('POST', '/v1/chat/completions', { ...json, authorization: `Bearer ${key}` });

describe('a connection that its client never closes', () => {
  it.each([
    ['says nothing', 408, () => ''],
    ['stops in its headers', 408, () => 'GET /v1/models HTTP/1.1\r\nhost: headgate\r\nx-'],
    ['speaks no HTTP', 400, () => 'hello\r\n\r\n'],
    ['has headers without end', 431, () => `GET / HTTP/1.1\r\nx: ${'x'.repeat(20_000)}`],
    ['has two hosts', 400, () => 'GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n'],
    ['stops in a body', 408, () => `${body(victim().customer.key)}{`],
  ])('is closed when it %s: %i', async (_, status, first) => {
    const { keyId, managementKey } = victim().customer;
    await victim().api(`/v1/keys/${keyId}`, { key: managementKey, method: 'PATCH', body: { max_concurrency: null } });
    const before = victim().descriptors();
    const heard = openMany(first());
    await until(() => heard.every(({ text }) => text.startsWith(`HTTP/1.1 ${status} `)));
    tell(`${victim().descriptors()} descriptors, ${before} before`);
    await until(() => victim().descriptors() <= before + 10);
    expect(heard.every(({ text }) => text.includes('"error":'))).toBe(true);
  });
});

it('leaves a customer every answer, also with hundreds that wait for an error', async () => {
  openMany('');
  const { answers } = await serveCustomer(victim(), `while ${connections} connections are silent`);
  expect(answers).toBe(50);
});

describe('bytes that are not HTTP after requests', () => {
  it('are rejected after the answers to the requests', async () => {
    const socket = stubborn(victim().url);
    open.push(socket);
    const heard = hear(socket);
    const request = JSON.stringify({ model: 'chat', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 });
    const headers = { ...json, 'content-length': request.length, authorization: `Bearer ${victim().customer.key}` };
    socket.write(`${head('POST', '/v1/chat/completions', headers)}${request}no HTTP\r\n\r\n`);
    await until(() => heard.closed || heard.text.includes('HTTP/1.1 400'));
    expect(heard.text.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400']);
    expect(heard.text).toContain('"finish_reason"');
  });
});
