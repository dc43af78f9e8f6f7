import { createHash } from 'node:crypto';
import type { Patience } from './watch.ts';

/**
 * Redis as the gateway uses it: Lua scripts and messages. Calls never wait long: they fail at once without a
 * connection, and after `answerTimeoutMs` without an answer (`shortTimeoutMs` for short patience). After a long
 * timeout, calls fail at once until Redis answers again. `REDIS_URL` with `?cluster=1` names any node of a cluster,
 * which counts as answering when all of its masters answer.
 */

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

/** Reply of a script: integers come as numbers, texts as strings; a list contains no lists. */
export type RedisReply = RedisValue | readonly RedisValue[];
type RedisValue = string | number | null;

export interface RedisStore {
  /**
   * Runs a script; all its keys must have the same hash tag. Reusing an array of keys is cheaper than a new array.
   * @throws RedisAwayError
   */
  run(script: RedisScript, keys: readonly string[], args: readonly string[], patience?: Patience): Promise<RedisReply>;
  /** False while Redis is unreachable, or did not answer a call or a ping within the short timeout. */
  readonly answers: boolean;
  /** Called when `answers` turns false. */
  onSilence(listener: () => void): void;
  /** Runs a task when this round of the event loop has read all input; the task's calls leave in one write. */
  atRoundEnd(task: () => void): void;
  /** Runs one command. @throws RedisAwayError */
  command(name: string, ...args: readonly string[]): Promise<unknown>;
  /** @throws RedisAwayError while Redis is unreachable, or if it rejected a command within the last seconds */
  check(): Promise<void>;
  /** Sends a message to the subscribers of a channel. @throws RedisAwayError */
  publish(channel: string, message: string): Promise<void>;
  /** Subscribes permanently: the subscription is restored after a lost connection. */
  subscribe(channels: readonly string[], listener: (channel: string, message: string) => void): Promise<void>;
  /** Called when the subscription is restored after a loss: messages may have been missed. */
  onGap(listener: () => void): void;
  close(): void;
}

/** A bulk string of the Redis protocol: https://redis.io/docs/latest/develop/reference/protocol-spec/ */
export function frame(text: string): string {
  return `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
}
