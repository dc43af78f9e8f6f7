import { parentPort } from 'node:worker_threads';
import { AppError, type ErrorCode } from '#base/errors.ts';
import { type ReadJob, readRequest, type RequestFields } from '#edge/inference/request/request.ts';

/** A thread that reads large bodies, one at a time; see large-bodies.ts. */

export interface BodyTask extends ReadJob {
  /** The body in the chunks in which it arrived. */
  readonly parts: readonly ArrayBuffer[];
}

/** A body that was rejected. */
export interface BodyRefusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param: string | null;
}

export interface BodyResult {
  /** The body in one piece; null if it was rejected. */
  readonly bytes: ArrayBuffer | null;
  /** The fields without their text, which is in `bytes`; null if the body was rejected. */
  readonly fields: RequestFields | null;
  readonly refusal: BodyRefusal | null;
}

function answer({ parts, ...job }: BodyTask): BodyResult {
  const given = joined(parts);
  try {
    const fields = readRequest(Buffer.from(given), job);
    const { text, isChanged } = fields;
    fields.text = '';
    const bytes = isChanged && typeof text === 'string' ? latin1Bytes(text) : given;
    return { bytes, fields, refusal: null };
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const { code, message, param } = error;
    return { bytes: null, fields: null, refusal: { code, message, param } };
  }
}

function latin1Bytes(text: string): ArrayBuffer {
  const bytes = new Uint8Array(text.length);
  Buffer.from(bytes.buffer).write(text, 'latin1');
  return bytes.buffer;
}

function joined(parts: readonly ArrayBuffer[]): ArrayBuffer {
  const bytes = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(new Uint8Array(part), at);
    at += part.byteLength;
  }
  return bytes.buffer;
}

parentPort?.on('message', (task: BodyTask) => {
  const result = answer(task);
  parentPort?.postMessage(result, result.bytes === null ? [] : [result.bytes]);
});
