import { type Db, isDatabaseUnavailable } from '#base/database/database.ts';
import type { BodyText } from '#base/json/json.ts';
import type { Log } from '#base/log.ts';
import { compress } from './compress.ts';
import { requestContents } from './schema.ts';

/** Bodies to store, as latin1: one character per byte of their UTF-8. */
export interface NewContent {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  readonly request: BodyText;
  readonly response: string;
  /** True if the response is only the beginning of the sent answer. */
  readonly responseTruncated: boolean;
}

interface Item extends Omit<NewContent, 'request' | 'response'> {
  readonly request: Buffer;
  readonly response: Buffer;
  readonly requestTruncated: boolean;
}

export interface ContentWriterOptions {
  readonly db: Db;
  readonly log: Log;
  readonly bodyBytesMax: number;
}

/** Memory for bodies that wait to be written; when it is used up, newer bodies are dropped until there is room. */
const waitingBytesMax = 67_108_864;
const batchMax = 32;
const retryDelayMs = 500;
/** Time that a reader waits for a body that is about to be written. */
const readerWaitMs = 2000;

const sizeOf = ({ request, response }: Item): number => request.length + response.length;

/** Writes bodies in the background: one batch after another, with retries while the database is unavailable. */
export class ContentWriter {
  readonly #db: Db;
  readonly #log: Log;
  readonly #bodyBytesMax: number;
  #queue: Item[] = [];
  #waitingBytes = 0;
  #leftOut = 0;
  #running: Promise<void> | null = null;
  #stopped = false;
  /** Listeners for each request whose bodies are not written yet. */
  readonly #waiting = new Map<string, (() => void)[]>();

  constructor({ db, log, bodyBytesMax }: ContentWriterOptions) {
    this.#db = db;
    this.#log = log;
    this.#bodyBytesMax = bodyBytesMax;
  }

  add(content: NewContent): void {
    const item = this.#itemOf(content);
    if (this.#waitingBytes + sizeOf(item) > waitingBytesMax) {
      if (this.#leftOut === 0)
        this.#log.warn(
          'contents of requests (keys with store_requests) arrive too fast for PostgreSQL: some are not stored; usage and charges are complete',
        );
      this.#leftOut += 1;
      return;
    }
    this.#waitingBytes += sizeOf(item);
    this.#queue.push(item);
    this.#waiting.set(item.requestId, []);
    this.#running ??= this.#run();
  }

  /** Resolves when the bodies of a request are written or dropped, after two seconds at the latest. */
  written(requestId: string): Promise<void> {
    const listeners = this.#waiting.get(requestId);
    if (listeners === undefined) return Promise.resolve();
    return new Promise((resolve) => {
      const late = setTimeout(resolve, readerWaitMs);
      listeners.push(() => {
        clearTimeout(late);
        resolve();
      });
    });
  }

  async close(timeoutMs: number): Promise<void> {
    const late = setTimeout(() => {
      this.#stopped = true;
    }, timeoutMs);
    await this.#running;
    clearTimeout(late);
  }

  /** Copies the stored part, so that a long body does not stay in memory because of its beginning. */
  #itemOf({ request, response, responseTruncated, ...ids }: NewContent): Item {
    const bytesMax = this.#bodyBytesMax;
    return {
      ...ids,
      request: Buffer.from(request.slice(0, bytesMax), 'latin1'),
      response: Buffer.from(response.slice(0, bytesMax), 'latin1'),
      requestTruncated: request.length > bytesMax,
      responseTruncated: responseTruncated || response.length > bytesMax,
    };
  }

  async #run(): Promise<void> {
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0, batchMax);
      try {
        await this.#write(batch);
      } catch (error) {
        this.#log.error(
          { err: error, contents: batch.length },
          'contents of requests (keys with store_requests) could not be stored and are lost; usage and charges are complete',
        );
      }
      for (const item of batch) this.#done(item);
    }
    this.#running = null;
  }

  #done(item: Item): void {
    this.#waitingBytes -= sizeOf(item);
    const listeners = this.#waiting.get(item.requestId) ?? [];
    this.#waiting.delete(item.requestId);
    for (const listener of listeners) listener();
    if (this.#leftOut === 0 || this.#waitingBytes > waitingBytesMax / 2) return;
    this.#log.warn(
      { leftOut: this.#leftOut },
      'contents of requests (keys with store_requests) are stored again; the contents of some requests (see leftOut) are lost',
    );
    this.#leftOut = 0;
  }

  async #write(batch: readonly Item[]): Promise<void> {
    const rows = await Promise.all(
      batch.map(async (item) => ({
        ...item,
        request: await compress(item.request),
        response: await compress(item.response),
      })),
    );
    for (;;) {
      try {
        await this.#db.orm.insert(requestContents).values(rows).onConflictDoNothing();
        return;
      } catch (error) {
        if (!isDatabaseUnavailable(error) || this.#stopped) throw error;
        await new Promise((resolve) => setTimeout(resolve, retryDelayMs));
      }
    }
  }
}
