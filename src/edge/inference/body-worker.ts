import { parentPort } from 'node:worker_threads';
import { AppError, type ErrorCode } from '#base/errors.ts';
import type { RequestFields } from './fields.ts';
import { readRequest, type ReadJob } from './read-request.ts';

/** A thread that reads large bodies, one at a time; see large-bodies.ts. */

export interface BodyTask extends ReadJob {
  /** Handed over, and given back with the result. */
  readonly bytes: ArrayBuffer;
}

/** A body that was refused. */
export interface BodyRefusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param: string | null;
}

export interface BodyResult {
  readonly bytes: ArrayBuffer;
  /** But for the text, which is made of the bytes where it is wanted. */
  readonly fields: RequestFields | null;
  readonly refusal: BodyRefusal | null;
}

function answer({ bytes, ...job }: BodyTask): BodyResult {
  try {
    const fields = readRequest(Buffer.from(bytes), job);
    fields.text = '';
    return { bytes, fields, refusal: null };
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const { code, message, param } = error;
    return { bytes, fields: null, refusal: { code, message, param } };
  }
}

parentPort?.on('message', (task: BodyTask) => {
  const result = answer(task);
  parentPort?.postMessage(result, [result.bytes]);
});
