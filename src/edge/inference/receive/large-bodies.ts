import { Worker } from 'node:worker_threads';
import { AppError } from '#base/errors.ts';
import { LargeText } from '#base/json/json.ts';
import type { Log } from '#base/log.ts';
import { FairQueue } from '#base/queues/queues.ts';
import { ClientGoneError } from '#edge/http/http.ts';
import type { ReadJob, RequestFields, RequestForm } from '#edge/inference/request/request.ts';
import type { BodyResult, BodyTask } from './body-worker.ts';

/**
 * Reads large bodies in a separate thread, so that they do not block the event loop: one after the other, in an order
 * that is fair among keys by bytes. The thread starts with the first body.
 */
export interface LargeBodies {
  /**
   * @param parts transferred to the thread, and not usable afterwards
   * @throws AppError as `readRequest`; overloaded if the thread ended; ClientGoneError if `signal` aborts first
   */
  read(keyId: string, parts: readonly Buffer[], job: ReadJob, signal: AbortSignal): Promise<RequestFields>;
  /** Ends the thread. The body that is being read is rejected. */
  close(): void;
}

interface Waiting {
  readonly keyId: string;
  readonly task: BodyTask;
  readonly resolve: (fields: RequestFields) => void;
  readonly reject: (error: Error) => void;
}

export function createLargeBodies(log: Log): LargeBodies {
  return new BodyThread(log);
}

const workerLost = (): AppError => new AppError('overloaded', { headers: { 'retry-after': '1' } });

class BodyThread implements LargeBodies {
  readonly #log: Log;
  readonly #queue = new FairQueue<Waiting>();
  #worker: Worker | null = null;
  #current: Waiting | null = null;

  constructor(log: Log) {
    this.#log = log;
  }

  read(keyId: string, parts: readonly Buffer[], job: ReadJob, signal: AbortSignal): Promise<RequestFields> {
    return new Promise((resolve, reject) => {
      const task = { ...job, form: plainForm(job.form), parts: parts.map(ownBytes) };
      const cost = task.parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
      const waiting: Waiting = { keyId, task, resolve, reject };
      const leave = (): void => {
        this.#queue.remove(keyId, waiting);
        reject(new ClientGoneError());
      };
      signal.addEventListener('abort', leave, { once: true });
      this.#queue.add(keyId, cost, waiting);
      this.#next();
    });
  }

  close(): void {
    void this.#worker?.terminate();
  }

  #next(): void {
    if (this.#current !== null) return;
    const next = this.#queue.take();
    if (next === null) return;
    this.#current = next;
    this.#thread().postMessage(next.task, [...next.task.parts]);
  }

  #thread(): Worker {
    if (this.#worker !== null) return this.#worker;
    const worker = new Worker(new URL('./body-worker.ts', import.meta.url));
    // The thread does not keep a stopping gateway alive.
    worker.unref();
    worker.on('message', (result: BodyResult) => this.#done(result));
    worker.on('error', (error) =>
      this.#log.error(
        { err: error },
        'the thread that reads large request bodies failed, and its request got an error; the next large body starts a new thread',
      ),
    );
    worker.on('exit', () => {
      this.#worker = null;
      this.#end()?.reject(workerLost());
      this.#next();
    });
    this.#worker = worker;
    return worker;
  }

  #done({ bytes, fields, refusal }: BodyResult): void {
    const waiting = this.#end();
    if (fields !== null && bytes !== null) {
      fields.text = new LargeText(Buffer.from(bytes));
      waiting?.resolve(fields);
    } else if (refusal !== null) {
      const { code, message, param } = refusal;
      waiting?.reject(new AppError(code, { message, ...(param !== null && { param }) }));
    }
    this.#next();
  }

  #end(): Waiting | null {
    const ended = this.#current;
    this.#current = null;
    if (ended !== null) this.#queue.correct(ended.keyId, 0);
    return ended;
  }
}

/** Copies only the form. It may be a row of endpoints with functions, which no message can carry. */
function plainForm({
  path,
  fields,
  generates,
  inputs,
  choicesKey,
  limitKeys,
  streamOptionsKey,
  itemsKey,
}: RequestForm): RequestForm {
  return { path, fields, generates, inputs, choicesKey, limitKeys, streamOptionsKey, itemsKey };
}

/** Returns memory that contains only these bytes and can be transferred. */
function ownBytes({ buffer, byteOffset, length }: Buffer): ArrayBuffer {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === length) return buffer;
  return buffer.slice(byteOffset, byteOffset + length) as ArrayBuffer;
}
