import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import { Cluster, Command, Redis } from 'ioredis';
import type { Log } from './log.ts';

/**
 * Redis as the gateway uses it: Lua scripts and messages. No call waits long: it fails at once while the server is away,
 * and after `answerTimeoutMs` when there is no answer. The calls after that fail at once until the server answers again. `REDIS_URL` with `?cluster=1` names any node of a cluster.
 */

/** Redis is away, or did not answer in time. */
export class RedisAwayError extends Error {
  /** The command may have reached Redis: nobody knows whether it ran. */
  readonly uncertain: boolean;

  constructor(message: string, uncertain: boolean, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'RedisAwayError';
    this.uncertain = uncertain;
  }
}

export interface RedisScript {
  readonly lua: string;
  readonly sha: string;
  /** The command and the script's hash as the protocol frames them. */
  readonly framed: string;
}

export function redisScript(lua: string): RedisScript {
  const sha = createHash('sha1').update(lua).digest('hex');
  return { lua, sha, framed: frame('evalsha') + frame(sha) };
}

/** What a script returns: whole numbers come as numbers, texts as strings; a list of them has no lists in it. */
export type RedisReply = RedisValue | readonly RedisValue[];
type RedisValue = string | number | null;

export interface RedisStore {
  /**
   * Runs a script; all its keys must carry the same hash tag. The same array of keys again costs less than another.
   * @throws RedisAwayError
   */
  run(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<RedisReply>;
  /** Runs a task at the end of this round of the event loop, after all that came was read, and before the writes leave. */
  atRoundEnd(task: () => void): void;
  /** Runs one command. @throws RedisAwayError */
  command(name: string, ...args: readonly string[]): Promise<unknown>;
  /** Sends a message to the subscribers of a channel. @throws RedisAwayError */
  publish(channel: string, message: string): Promise<void>;
  /** Subscribes for good: also after the connection was lost and came back. */
  subscribe(channels: readonly string[], listener: (channel: string, message: string) => void): Promise<void>;
  /** Called when the subscription stands again after a loss: messages may have been missed. */
  onGap(listener: () => void): void;
  close(): void;
}

type Client = Redis | Cluster;

/** A call fails after this many ticks of the watch: counted in ticks, a late event loop is not taken for a late Redis. */
const tickMs = 50;
const ticksMax = 10;
export const answerTimeoutMs = tickMs * ticksMax;
const probeEveryMs = 100;
const reconnectMsMax = 500;
const connectTimeoutMs = 2000;

const reconnectMs = (times: number): number => Math.min(25 * 2 ** Math.min(times, 6), reconnectMsMax);

/** @param isListener a listener's subscriptions may wait for the connection; calls never do */
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
 * Sends all commands of one round of the event loop in one write, which costs more than a command. With 16 keys in use
 * `node test/bench/admission.ts --keys 16` took 19 µs of CPU for a request, and 28 µs with a write for each command.
 */
class Round {
  #tasks: (() => void)[] = [];
  #uncorks: (() => void)[] = [];
  #isSet = false;

  /** Before the writes of the round leave. */
  atEnd(task: () => void): void {
    this.#tasks.push(task);
    this.#set();
  }

  gatherWrites(client: Client): void {
    if (client instanceof Cluster) client.on('+node', (node: Redis) => this.gatherWrites(node));
    else client.on('connect', () => this.#cork(client.stream));
  }

  /**
   * `npm run bench:redis`: with 32 callers a call takes a third more CPU at least without the cork, and a sixth more with
   * ioredis' own pipelining in its place.
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

/** @throws RedisAwayError when Redis cannot be reached */
export async function connectRedis(url: string, log: Log): Promise<RedisStore> {
  const store = new Store(url, log);
  await store.connect();
  return store;
}

interface Waiting {
  /** The watch's tick at which the call was sent. */
  readonly sentTick: number;
  readonly reject: (error: Error) => void;
}

class Store implements RedisStore {
  readonly #client: Client;
  readonly #listener: Client;
  readonly #log: Log;
  readonly #round = new Round();
  /** Oldest first. */
  readonly #waiting = new Set<Waiting>();
  #ticks = 0;
  readonly #watch: NodeJS.Timeout;
  readonly #gapListeners: (() => void)[] = [];
  /** True from a call that was not answered until a probe is. */
  #silent = false;
  #probing = false;
  #probeAtMs = 0;

  constructor(url: string, log: Log) {
    this.#log = log;
    this.#client = openClient(url, false);
    this.#listener = openClient(url, true);
    for (const client of [this.#client, this.#listener]) {
      client.on('error', (error: Error) => log.debug({ err: error }, 'a connection to Redis failed; it is made again'));
    }
    this.#round.gatherWrites(this.#client);
    this.#watch = setInterval(() => this.#tick(), tickMs).unref();
  }

  async connect(): Promise<void> {
    try {
      await Promise.all([this.#client.connect(), this.#listener.connect()]);
    } catch (error) {
      this.close();
      throw new RedisAwayError('Redis cannot be reached', false, error);
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

  run(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<RedisReply> {
    const evaluate = (): Promise<unknown> =>
      this.#ask(textCommand('eval', [script.lua, String(keys.length), ...keys, ...args]));
    return this.#ask(new ScriptCommand(script, keys, args), evaluate) as Promise<RedisReply>;
  }

  atRoundEnd(task: () => void): void {
    this.#round.atEnd(task);
  }

  command(name: string, ...args: readonly string[]): Promise<unknown> {
    return this.#ask(textCommand(name, args));
  }

  async publish(channel: string, message: string): Promise<void> {
    await this.#ask(textCommand('publish', [channel, message]));
  }

  async subscribe(channels: readonly string[], listener: (channel: string, message: string) => void): Promise<void> {
    this.#listener.on('message', listener);
    await this.#listener.subscribe(...channels);
  }

  onGap(listener: () => void): void {
    this.#gapListeners.push(listener);
  }

  close(): void {
    clearInterval(this.#watch);
    this.#client.disconnect();
    this.#listener.disconnect();
    for (const waiting of this.#waiting) this.#expire(waiting);
  }

  /** @param unknownScript what is asked instead when Redis does not know a script */
  #ask(command: Command, unknownScript?: () => Promise<unknown>): Promise<unknown> {
    if (this.#silent) return Promise.reject(new RedisAwayError('Redis does not answer', false));
    if (this.#client.status !== 'ready') return Promise.reject(new RedisAwayError('Redis is away', false));
    return new Promise((resolve, reject) => {
      const waiting: Waiting = { sentTick: this.#ticks, reject };
      this.#waiting.add(waiting);
      this.#client.sendCommand(command);
      command.promise.then(
        (reply: unknown) => {
          this.#waiting.delete(waiting);
          resolve(reply);
        },
        (error: unknown) => {
          if (!this.#waiting.delete(waiting)) return;
          if (unknownScript !== undefined && isUnknownScript(error)) unknownScript().then(resolve, reject);
          else reject(asError(error));
        },
      );
    });
  }

  /** Answers that have arrived are read before calls are given up: the poll phase comes between timers and immediates. */
  #tick(): void {
    this.#ticks += 1;
    if (this.#silent) this.#probe();
    if (this.#waiting.size > 0) setImmediate(() => this.#giveUp(this.#ticks - ticksMax));
  }

  /** Calls that were sent before a tick have waited long enough. */
  #giveUp(tick: number): void {
    for (const waiting of this.#waiting) {
      if (waiting.sentTick >= tick) return;
      if (!this.#silent) this.#log.warn({}, 'Redis does not answer; calls fail at once until it does');
      this.#silent = true;
      this.#expire(waiting);
    }
  }

  #expire(waiting: Waiting): void {
    this.#waiting.delete(waiting);
    waiting.reject(new RedisAwayError('Redis did not answer in time', true));
  }

  #probe(): void {
    if (this.#probing || performance.now() < this.#probeAtMs || this.#client.status !== 'ready') return;
    this.#probing = true;
    this.#probeAtMs = performance.now() + probeEveryMs;
    const ended = (answers: boolean): void => {
      this.#probing = false;
      if (!answers || !this.#silent) return;
      this.#silent = false;
      this.#log.info({}, 'Redis answers again');
    };
    this.#client.ping().then(
      () => ended(true),
      () => ended(false),
    );
  }
}

/** A bulk string of the Redis protocol: https://redis.io/docs/latest/develop/reference/protocol-spec/ */
function frame(text: string): string {
  return `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
}

const framedKeys = new WeakMap<readonly string[], string>();

/** The number of keys and the keys, framed: made once for an array, which must not change. */
function frameKeys(keys: readonly string[]): string {
  const known = framedKeys.get(keys);
  if (known !== undefined) return known;
  // Through bytes, so that it is one string and no longer a tree of its parts.
  const framed = Buffer.from([String(keys.length), ...keys].map(frame).join('')).toString();
  framedKeys.set(keys, framed);
  return framed;
}

/** The call of a script. Names of keys are most of it: they are framed once and not for every call. */
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
    // A text of many pieces is copied once as bytes here; the socket would copy it twice, once to count its bytes.
    return Buffer.from(text);
  }
}

function textCommand(name: string, args: readonly string[]): Command {
  return new Command(name, [...args], { replyEncoding: 'utf8' });
}

const isUnknownScript = (error: unknown): boolean => error instanceof Error && error.message.includes('NOSCRIPT');

/** Redis' own errors are passed on; any other means that the call or its answer was lost. */
function asError(error: unknown): Error {
  if (!(error instanceof Error)) return new RedisAwayError(String(error), true);
  if (error.name === 'ReplyError' && !/^(LOADING|CLUSTERDOWN|READONLY|MASTERDOWN|BUSY|TRYAGAIN)/.test(error.message)) {
    return error;
  }
  return new RedisAwayError(error.message, true, error);
}
