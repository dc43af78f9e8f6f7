import type { Socket } from 'node:net';
import { Cluster, Command, Redis } from 'ioredis';
import type { Log } from '#base/log.ts';
import { within } from '#base/within.ts';
import { Refusals } from './refusals.ts';
import { frame, type RedisReply, type RedisScript, type RedisStore } from './store.ts';
import { AnswerWatch, type Patience, RedisAwayError } from './watch.ts';

type Client = Redis | Cluster;

const reconnectMsMax = 500;
const connectTimeoutMs = 2000;

const reconnectMs = (times: number): number => Math.min(25 * 2 ** Math.min(times, 6), reconnectMsMax);

/** @param isListener subscriptions of a listener may wait for the connection; calls never wait */
function openClient(url: string, isListener: boolean): Client {
  const parsed = new URL(url);
  const isCluster = parsed.searchParams.get('cluster') === '1';
  parsed.searchParams.delete('cluster');
  const common = { lazyConnect: true, enableOfflineQueue: isListener, enableAutoPipelining: false };
  const perNode = { maxRetriesPerRequest: isListener ? null : 0, connectTimeout: connectTimeoutMs };
  if (!isCluster) return new Redis(parsed.href, { ...common, ...perNode, retryStrategy: reconnectMs });
  const { hostname: host, port, protocol, username, password } = parsed;
  return new Cluster([{ host, port: port === '' ? 6379 : Number(port) }], {
    ...common,
    clusterRetryStrategy: reconnectMs,
    redisOptions: {
      ...perNode,
      ...(protocol === 'rediss:' ? { tls: {} } : {}),
      ...(username === '' ? {} : { username: decodeURIComponent(username) }),
      ...(password === '' ? {} : { password: decodeURIComponent(password) }),
    },
  });
}

/**
 * Sends all commands of one round of the event loop in one write, because a write costs more than a command. With 16
 * keys `node test/bench/admission.ts --keys 16` took 19 µs of CPU per request, and 28 µs with one write per command.
 */
class Round {
  #tasks: (() => void)[] = [];
  #uncorks: (() => void)[] = [];
  #isSet = false;

  /** Runs a task before the writes of the round leave. */
  atEnd(task: () => void): void {
    this.#tasks.push(task);
    this.#set();
  }

  gatherWrites(client: Client): void {
    if (client instanceof Cluster) client.on('+node', (node: Redis) => this.gatherWrites(node));
    else client.on('connect', () => this.#cork(client.stream));
  }

  /**
   * Corks the socket. `npm run bench:redis`: with 32 callers a call takes at least a third more CPU without the cork,
   * and a sixth more with ioredis' own pipelining instead.
   */
  #cork(socket: Socket): void {
    const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
    let corked = false;
    const uncork = (): void => {
      corked = false;
      socket.uncork();
    };
    socket.write = (...args: unknown[]): boolean => {
      if (!corked) {
        corked = true;
        socket.cork();
        this.#uncorks.push(uncork);
        this.#set();
      }
      return write(...args);
    };
  }

  #set(): void {
    if (!this.#isSet) setImmediate(() => this.#end());
    this.#isSet = true;
  }

  #end(): void {
    const tasks = this.#tasks;
    this.#tasks = [];
    try {
      for (const task of tasks) task();
    } finally {
      const uncorks = this.#uncorks;
      this.#uncorks = [];
      for (const uncork of uncorks) uncork();
      this.#isSet = false;
      if (this.#tasks.length > 0) this.#set();
    }
  }
}

/** Time limit of a subscription, which happens only at a start and may wait longer than a request. */
const subscribeTimeoutMs = 5000;

/** @throws RedisAwayError when Redis cannot be reached */
export async function connectRedis(url: string, log: Log): Promise<RedisStore> {
  const store = new Store(url, log);
  await store.connect();
  return store;
}

class Store implements RedisStore {
  readonly #client: Client;
  readonly #listener: Client;
  readonly #round = new Round();
  readonly #watch: AnswerWatch;
  readonly #refusals: Refusals;
  readonly #gapListeners: (() => void)[] = [];
  /** Last connection error; the rejection of `connect` does not contain the reason. */
  #failure: Error | null = null;

  constructor(url: string, log: Log) {
    this.#refusals = new Refusals(log);
    this.#client = openClient(url, false);
    this.#listener = openClient(url, true);
    for (const client of [this.#client, this.#listener]) {
      client.on('error', (error: Error) => {
        this.#failure = error;
        log.debug({ err: error }, 'a connection to Redis failed; reconnecting');
      });
    }
    this.#round.gatherWrites(this.#client);
    const ping = (): Promise<unknown> => Promise.all(nodesOf(this.#client).map((node) => node.ping()));
    this.#watch = new AnswerWatch({ ping, isConnected: () => this.#client.status === 'ready', log });
    this.#client.on('close', () => this.#watch.lost());
  }

  async connect(): Promise<void> {
    try {
      await Promise.all([this.#client.connect(), this.#listener.connect()]);
    } catch (error) {
      this.close();
      throw new RedisAwayError('Redis is unreachable', false, this.#failure ?? error);
    }
    let connected = true;
    this.#listener.on('close', () => (connected = false));
    this.#listener.on('ready', () => {
      if (connected) return;
      connected = true;
      // Subscriptions are restored right after `ready`.
      setImmediate(() => this.#gapListeners.forEach((listener) => listener()));
    });
  }

  get answers(): boolean {
    return this.#watch.answers;
  }

  onSilence(listener: () => void): void {
    this.#watch.onSilence(listener);
  }

  run(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    patience: Patience = 'long',
  ): Promise<RedisReply> {
    const evaluate = (): Promise<unknown> =>
      this.#ask(textCommand('eval', [script.lua, String(keys.length), ...keys, ...args]), patience);
    return this.#ask(new ScriptCommand(script, keys, args), patience, evaluate) as Promise<RedisReply>;
  }

  atRoundEnd(task: () => void): void {
    this.#round.atEnd(task);
  }

  command(name: string, ...args: readonly string[]): Promise<unknown> {
    return this.#ask(textCommand(name, args), 'long');
  }

  async check(): Promise<void> {
    await this.command('PING');
    const { current } = this.#refusals;
    if (current !== null) throw new RedisAwayError(current, false);
  }

  async publish(channel: string, message: string): Promise<void> {
    await this.#ask(textCommand('publish', [channel, message]), 'long');
  }

  async subscribe(channels: readonly string[], listener: (channel: string, message: string) => void): Promise<void> {
    this.#listener.on('message', listener);
    try {
      await within(this.#listener.subscribe(...channels), subscribeTimeoutMs, () => {
        throw new RedisAwayError('Redis did not answer in time', true);
      });
    } catch (error) {
      throw error instanceof RedisAwayError ? error : new RedisAwayError('Redis is unreachable', true, error);
    }
  }

  onGap(listener: () => void): void {
    this.#gapListeners.push(listener);
  }

  close(): void {
    this.#watch.close();
    this.#client.disconnect();
    this.#listener.disconnect();
  }

  /** @param unknownScript call to make instead if Redis does not know a script */
  #ask(command: Command, patience: Patience, unknownScript?: () => Promise<unknown>): Promise<unknown> {
    if (this.#watch.isSilent) return Promise.reject(new RedisAwayError('Redis does not answer', false));
    if (this.#client.status !== 'ready') return Promise.reject(new RedisAwayError('Redis is unreachable', false));
    this.#client.sendCommand(command);
    return this.#watch.wait(command.promise, patience, (error) => {
      if (unknownScript !== undefined && isUnknownScript(error)) return unknownScript();
      throw asError(error, this.#refusals);
    });
  }
}

/** Returns every server that calls may go to. */
function nodesOf(client: Client): readonly Redis[] {
  return client instanceof Cluster ? client.nodes('master') : [client];
}

const framedKeys = new WeakMap<readonly string[], string>();

/** Frames the number of keys and the keys, once per array; the array must not change. */
function frameKeys(keys: readonly string[]): string {
  const known = framedKeys.get(keys);
  if (known !== undefined) return known;
  // Converted through bytes, so that the result is one flat string and not a tree of its parts.
  const framed = Buffer.from([String(keys.length), ...keys].map(frame).join('')).toString();
  framedKeys.set(keys, framed);
  return framed;
}

/** A call of a script. Key names are most of a call, so they are framed once and not for every call. */
class ScriptCommand extends Command {
  readonly #head: string;
  readonly #values: readonly string[];

  constructor(script: RedisScript, keys: readonly string[], values: readonly string[]) {
    super('evalsha', [script.sha, String(keys.length), ...keys, ...values], { replyEncoding: 'utf8' });
    this.#head = `*${3 + keys.length + values.length}\r\n${script.framed}${frameKeys(keys)}`;
    this.#values = values;
  }

  override toWritable(): Buffer {
    let text = this.#head;
    for (const value of this.#values) text += frame(value);
    // Copied once to bytes here; the socket would copy a string of many pieces twice, once to count its bytes.
    return Buffer.from(text);
  }
}

function textCommand(name: string, args: readonly string[]): Command {
  return new Command(name, [...args], { replyEncoding: 'utf8' });
}

const isUnknownScript = (error: unknown): boolean => error instanceof Error && error.message.includes('NOSCRIPT');

/**
 * Passes on an error that Redis answers with, except one that says that Redis is unable to work. That error, like every
 * other, becomes a RedisAwayError: the command may have run, or not.
 */
function asError(error: unknown, refusals: Refusals): Error {
  if (!(error instanceof Error)) return new RedisAwayError(String(error), true);
  if (error.name === 'ReplyError' && !refusals.note(error.message)) return error;
  return new RedisAwayError(error.message, true, error);
}
