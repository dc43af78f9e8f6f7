import { Worker } from 'node:worker_threads';
import { LargeText } from '#base/body-text.ts';
import { AppError } from '#base/errors.ts';
import { FairQueue } from '#base/fair-queue.ts';
import type { Log } from '#base/log.ts';
import { ClientGoneError } from '#edge/http/http.ts';
import type { BodyResult, BodyTask } from './body-worker.ts';
import type { RequestFields } from './fields.ts';
import type { ReadJob } from './read-request.ts';
import type { RequestForm } from './request-form.ts';

/**
 * Reads large bodies in a thread of its own, so that they do not hold up the event loop: one after the other, in an
 * order that is fair among keys by bytes. The thread is started with the first body.
 */
export interface LargeBodies {
  /**
   * @param parts handed over: not to be used any more
   * @throws AppError as `readRequest`; overloaded when the thread ended; ClientGoneError when `signal` aborts first
   */
  read(keyId: string, parts: readonly Buffer[], job: ReadJob, signal: AbortSignal): Promise<RequestFields>;
  /** Ends the thread; what is being read is refused. */
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

const gone = (): AppError => new AppError('overloaded', { headers: { 'retry-after': '1' } });

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
    // A gateway that stops does not wait for it.
    worker.unref();
    worker.on('message', (result: BodyResult) => this.#done(result));
    worker.on('error', (error) =>
      this.#log.error(
        { err: error },
        'the thread that reads large request bodies failed; the next body starts another',
      ),
    );
    worker.on('exit', () => {
      this.#worker = null;
      this.#end()?.reject(gone());
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

/** The form alone of what may be a row with functions in it, which no message can carry. */
function plainForm({
  path,
  generates,
  inputs,
  choicesKey,
  limitKeys,
  streamOptionsKey,
  itemsKey,
}: RequestForm): RequestForm {
  return { path, generates, inputs, choicesKey, limitKeys, streamOptionsKey, itemsKey };
}

/** Memory that nothing else lies in, which is what can be handed over. */
function ownBytes({ buffer, byteOffset, length }: Buffer): ArrayBuffer {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === length) return buffer;
  return buffer.slice(byteOffset, byteOffset + length) as ArrayBuffer;
}
