import type Docker from 'dockerode';
import { once } from 'node:events';
import type { Agent } from 'node:http';
import type { Readable } from 'node:stream';
import { inspect } from 'node:util';
import type { z } from 'zod';

/** Calls of the Engine API through dockerode: bounded in time, with errors that describe the failure. */

/** Address and keys of a Docker engine. */
export interface DockerConnection {
  readonly socketPath?: string;
  readonly host?: string;
  readonly port?: number;
  /** Reads the keys again, because they may have been renewed. */
  readonly tls?: () => { readonly ca: Buffer; readonly cert: Buffer; readonly key: Buffer };
  readonly agent?: Agent;
}

/** A call that failed, with the engine's answer or the reason why the engine could not be asked. */
export class DockerError extends Error {
  readonly call: string;
  /** null: the engine did not answer. */
  readonly status: number | null;
  /** Message of the engine or of the system. */
  readonly reason: string;

  constructor(call: string, status: number | null, reason: string) {
    super(`Docker: ${call}: ${status === null ? '' : `${status}: `}${reason}`);
    this.name = 'DockerError';
    this.call = call;
    this.status = status;
    this.reason = reason;
  }
}

type Signal = { abortSignal: AbortSignal };
/** Makes one call, and gives it up after its time limit. @throws DockerError */
export type Call = <T>(
  name: string,
  timeoutMs: number,
  make: (docker: Docker, signal: Signal) => Promise<T>,
) => Promise<T>;
/** Makes a call that answers while the caller listens; only the caller's signal ends it. @throws DockerError */
export type Open = (name: string, make: (docker: Docker) => Promise<Readable>) => Promise<Readable>;

export interface DockerCalls {
  readonly call: Call;
  readonly open: Open;
  /** Creates a new client, which reads the keys again. */
  readonly renew: () => Promise<Docker>;
}

export const callTimeoutMs = 10_000;
/** Time limit of calls that change something: hooks prepare containers with GPUs, and a full disk is slow. */
export const changeTimeoutMs = 120_000;

export function createDockerCalls(connection: DockerConnection): DockerCalls {
  let loading: Promise<Docker> | null = null;
  const docker = (): Promise<Docker> => (loading ??= loadDocker(connection));
  const call: Call = async (name, timeoutMs, make) => {
    try {
      const client = await docker();
      const abortSignal = AbortSignal.timeout(timeoutMs);
      const made = make(client, { abortSignal });
      // Some calls of dockerode ignore the signal. Created last: if a line above throws, nobody would handle the
      // rejection.
      const late = once(abortSignal, 'abort').then(() => Promise.reject(new DockerError(name, null, 'timed out')));
      return await Promise.race([made, late]);
    } catch (error) {
      throw dockerError(name, error);
    }
  };
  const open: Open = async (name, make) => {
    try {
      return await make(await docker());
    } catch (error) {
      throw dockerError(name, error);
    }
  };
  return {
    call,
    open,
    async renew() {
      loading = null;
      return docker().catch((error: unknown) => Promise.reject(dockerError('connect', error)));
    },
  };
}

async function loadDocker({ socketPath, host, port, tls: readKeys, agent }: DockerConnection): Promise<Docker> {
  const tls = readKeys?.();
  // Loaded when needed: dockerode costs 120 ms and 30 MB.
  const { default: Client } = await import('dockerode');
  const { Agent: HttpAgent } = await import('node:http');
  const { Agent: HttpsAgent } = await import('node:https');
  // Every option is set, or dockerode would read it from the environment. No connection is kept alive: after a restart
  // of the engine it would be dead, and a change must not be sent twice.
  const ownAgent = agent ?? (tls === undefined ? new HttpAgent({ keepAlive: false }) : new HttpsAgent(tls));
  // docker-modem formats every call's options for its debug log, even if the log is off, and the agent contains all
  // open connections: each call blocked the event loop for milliseconds while events or logs were followed.
  Object.assign(ownAgent, { [inspect.custom]: () => 'Agent' });
  return new Client({
    socketPath,
    host,
    port,
    protocol: tls === undefined ? 'http' : 'https',
    pathPrefix: '/',
    ca: tls?.ca,
    cert: tls?.cert,
    key: tls?.key,
    agent: ownAgent,
    timeout: undefined,
  });
}

export function read<T>(name: string, schema: z.ZodType<T>, answer: unknown): T {
  const parsed = schema.safeParse(answer);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new DockerError(name, null, `unexpected response (${issue?.path.join('.')}: ${issue?.message})`);
}

export async function orNull(call: Promise<unknown>): Promise<unknown> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof DockerError && error.status === 404) return null;
    throw error;
  }
}

export async function unless(statuses: readonly number[], call: Promise<unknown>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof DockerError) || error.status === null || !statuses.includes(error.status)) throw error;
  }
}

function dockerError(name: string, error: unknown): DockerError {
  if (error instanceof DockerError) return error;
  if (!(error instanceof Error)) return new DockerError(name, null, String(error));
  const { statusCode, json, code } = error as Error & { statusCode?: unknown; json?: unknown; code?: unknown };
  if (typeof statusCode !== 'number') {
    const text = error.name === 'AbortError' || error.name === 'TimeoutError' ? 'timed out' : error.message;
    return new DockerError(name, null, typeof code === 'string' && !text.includes(code) ? `${code}: ${text}` : text);
  }
  const message = typeof json === 'object' && json !== null && 'message' in json ? String(json.message) : error.message;
  return new DockerError(name, statusCode, message);
}
