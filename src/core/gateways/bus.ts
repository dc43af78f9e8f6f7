import { randomUUID } from 'node:crypto';
import type { Log } from '#base/log.ts';
import type { RedisStore } from '#base/redis/redis.ts';

/** A message between gateways: a flat object of texts. */
export type Message = Readonly<Record<string, string>>;

interface Envelope {
  readonly id: string;
  readonly from: string;
  readonly message: Message;
}

interface Asked {
  readonly missing: Set<string>;
  readonly done: () => void;
}

export interface BusOptions {
  readonly store: RedisStore;
  readonly prefix: string;
  readonly gatewayId: string;
  readonly log: Log;
}

/** Carries out another gateway's message; the message is acknowledged when the promise resolves. */
export type MessageHandler = (message: Message) => Promise<void>;

/** Sends messages to all other gateways. Each acknowledges a message when it has carried the message out. */
export class Bus {
  readonly #options: BusOptions;
  readonly #asked = new Map<string, Asked>();
  #handle: MessageHandler = () => Promise.resolve();

  constructor(options: BusOptions) {
    this.#options = options;
  }

  async open(): Promise<void> {
    const { store, gatewayId } = this.#options;
    await store.subscribe([this.#all, this.#to(gatewayId)], (channel, text) => this.#received(channel, text));
  }

  onMessage(handle: MessageHandler): void {
    this.#handle = handle;
  }

  /**
   * Sends a message to all others, and waits until those in `gatewayIds` have carried it out.
   * @returns those that did not acknowledge in time
   * @throws RedisAwayError
   */
  async send(message: Message, gatewayIds: readonly string[], timeoutMs: number): Promise<readonly string[]> {
    const { store, gatewayId } = this.#options;
    const id = randomUUID();
    const missing = new Set(gatewayIds.filter((other) => other !== gatewayId));
    const acknowledged = new Promise<void>((resolve) => {
      this.#asked.set(id, { missing, done: resolve });
      setTimeout(resolve, timeoutMs).unref();
    });
    try {
      await store.publish(this.#all, JSON.stringify({ id, from: gatewayId, message }));
      if (missing.size > 0) await acknowledged;
    } finally {
      this.#asked.delete(id);
    }
    return [...missing];
  }

  get #all(): string {
    return `${this.#options.prefix}:gateways`;
  }

  #to(gatewayId: string): string {
    return `${this.#options.prefix}:gateway:${gatewayId}`;
  }

  #received(channel: string, text: string): void {
    try {
      const envelope = JSON.parse(text) as Envelope;
      if (channel === this.#all) void this.#done(envelope);
      else if (channel === this.#to(this.#options.gatewayId)) this.#acknowledged(envelope);
    } catch (error) {
      this.#options.log.warn(
        { err: error },
        'ignored a message on the Redis channel of the gateways: it is not JSON. Check which other program uses this Redis',
      );
    }
  }

  #acknowledged({ id, from }: Envelope): void {
    const asked = this.#asked.get(id);
    if (asked === undefined) return;
    asked.missing.delete(from);
    if (asked.missing.size === 0) asked.done();
  }

  /**
   * Carries out a message. If that fails, the message is not acknowledged: its sender waits as for a gateway that does
   * not answer.
   */
  async #done({ id, from, message }: Envelope): Promise<void> {
    const { store, gatewayId, log } = this.#options;
    if (from === gatewayId) return;
    try {
      await this.#handle(message);
      await store.publish(this.#to(from), JSON.stringify({ id, from: gatewayId, message: {} }));
    } catch (error) {
      log.warn(
        { err: error },
        'this gateway could not apply a change that another gateway announced; it reads the change from PostgreSQL within two seconds, except reloads of engine files',
      );
    }
  }
}
