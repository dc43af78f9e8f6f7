import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Endpoint } from '#base/net/endpoint.ts';
import {
  createEngineClient,
  type AnswerHeaders,
  type AnswerSink,
  type EngineCall,
  type EngineClient,
  type EngineClientOptions,
  type EngineFault,
  type EngineRequest,
} from '#core/engine-client/engine-client.ts';
import { startByteServer, type ByteServer, type ByteServerOptions } from '#test/proxy/byte-server.ts';

/** Limits that no test reaches unless it sets its own. */
export function clientWith(options: Partial<EngineClientOptions>): EngineClient {
  return createEngineClient({
    firstByteTimeoutMs: 60_000,
    idleTimeoutMs: 60_000,
    connectTimeoutMs: 60_000,
    idleSocketMs: 60_000,
    maxHeaderBytes: 8_192,
    ...options,
  });
}

export interface Outcome {
  status: number | null;
  headers: AnswerHeaders | null;
  body: string;
  /** Callbacks in their order, repetitions of onData left out. */
  callbacks: string[];
  fault: EngineFault | null;
}

export interface Started {
  readonly call: EngineCall;
  readonly outcome: Outcome;
  /** Resolves on onEnd or onFault. */
  readonly over: Promise<Outcome>;
}

export const post: EngineRequest = { method: 'POST', path: '/v1/x', headerLines: 'X-Test: 1\r\n', body: '{"a":1}' };

/** Starts a call that writes down everything; hooks run after the writing down. */
export function start(
  client: EngineClient,
  endpoint: Endpoint,
  request: Partial<EngineRequest> = {},
  hooks: Partial<AnswerSink> = {},
): Started {
  const outcome: Outcome = { status: null, headers: null, body: '', callbacks: [], fault: null };
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  const call = client.call(
    endpoint,
    { ...post, ...request },
    {
      onHead(status, headers) {
        outcome.callbacks.push('head');
        outcome.status = status;
        outcome.headers = headers;
        hooks.onHead?.(status, headers);
      },
      onData(text) {
        if (outcome.callbacks.at(-1) !== 'data') outcome.callbacks.push('data');
        outcome.body += text;
        hooks.onData?.(text);
      },
      onEnd() {
        outcome.callbacks.push('end');
        resolve(outcome);
        hooks.onEnd?.();
      },
      onFault(fault) {
        outcome.callbacks.push('fault');
        outcome.fault = fault;
        resolve(outcome);
        hooks.onFault?.(fault);
      },
    },
  );
  return { call, outcome, over: promise };
}

/** Waits for what a test needs to have happened; the test's own time limit ends it. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await nextTurn();
}

export interface Ground {
  serve(options: ByteServerOptions): Promise<ByteServer>;
  readonly client: (options?: Partial<EngineClientOptions>) => EngineClient;
  /** Closes every client, then every server. */
  clear(): Promise<void>;
}

/** Owns all that one test file starts, so that each test can remove all of it. */
export function createGround(): Ground {
  const servers: ByteServer[] = [];
  const clients: EngineClient[] = [];
  return {
    async serve(options) {
      const server = await startByteServer(options);
      servers.push(server);
      return server;
    },
    client(options = {}) {
      const client = clientWith(options);
      clients.push(client);
      return client;
    },
    async clear() {
      for (const client of clients.splice(0)) client.close();
      for (const server of servers.splice(0)) await server.close();
    },
  };
}
