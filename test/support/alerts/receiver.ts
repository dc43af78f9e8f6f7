import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import { type AddressInfo, connect } from 'node:net';
import { Webhook } from 'standardwebhooks';
import { vi } from 'vitest';
import type { Outbound } from '#base/net/outbound.ts';
import { makeCertificate } from '#test/stacks/package-server.ts';

/** Servers of the internet that webhooks are sent to: names, TLS and connections are real, the addresses are not. */
export interface Receiver {
  readonly outbound: Outbound;
  /** Every name that was asked for. */
  readonly resolved: string[];
  /** `address:port` of every connection. */
  readonly dialed: string[];
  /** All that came, in its order. */
  readonly got: Got[];
  /** The status of the next answers; 204 by default. */
  answers: (got: Got) => Answer | Promise<Answer>;
  /** Addresses of names, which may be changed. */
  readonly hosts: Record<string, readonly string[]>;
  close(): Promise<void>;
}

export interface Got {
  readonly host: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A status with headers; null never answers. */
export type Answer = { readonly status: number; readonly headers?: Readonly<Record<string, string>> } | null;

const publicAddress = '93.184.215.14';
export const ok: Answer = { status: 204 };

export async function startReceiver(
  hosts: Readonly<Record<string, readonly string[]>> = { 'hooks.example': [publicAddress] },
): Promise<Receiver> {
  const { promise: closed, resolve: close } = Promise.withResolvers<void>();
  const receiver: Receiver = {
    outbound: {
      resolve(name) {
        receiver.resolved.push(name);
        const addresses = receiver.hosts[name];
        return addresses === undefined ? Promise.reject(new Error('ENOTFOUND')) : Promise.resolve(addresses);
      },
      dial(address, port) {
        receiver.dialed.push(`${address}:${port}`);
        return connect((server.address() as AddressInfo).port, '127.0.0.1');
      },
    },
    resolved: [],
    dialed: [],
    got: [],
    answers: () => ok,
    hosts: { ...hosts },
    async close() {
      close();
      server.closeAllConnections();
      await new Promise((resolve) => void server.close(resolve));
    },
  };
  const server = createServer(makeCertificate(Object.keys(hosts)), (request, response) => {
    void take(request).then(async (got) => {
      receiver.got.push(got);
      const answer = await Promise.race([receiver.answers(got), closed.then(() => null)]);
      send(response, answer);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return receiver;
}

async function take(request: IncomingMessage): Promise<Got> {
  const parts: Buffer[] = [];
  for await (const part of request as AsyncIterable<Buffer>) parts.push(part);
  const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
  const { host = '' } = headers;
  return { host, path: request.url ?? '', headers, body: Buffer.concat(parts).toString('utf8') };
}

function send(response: ServerResponse, answer: Answer): void {
  if (answer !== null) response.writeHead(answer.status, answer.headers ?? {}).end();
}

/** The message, as the official library reads it at its own time. @throws where it is not signed with that secret */
export function verified(secret: string, { headers, body }: Got): unknown {
  vi.useFakeTimers({ toFake: ['Date'], now: Number(headers['webhook-timestamp']) * 1000 });
  try {
    return new Webhook(secret).verify(body, { ...headers });
  } finally {
    vi.useRealTimers();
  }
}

export const idOf = ({ headers }: Got): string => headers['webhook-id'] ?? '';
