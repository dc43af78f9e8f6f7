import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { AppError } from '#base/errors.ts';
import { digestMembers } from '#base/json/json.ts';
import type { RequestChanges } from '#core/catalog/catalog.ts';
import { allowFallbackHeader } from '#edge/inference/answer/answer.ts';
import { changeBody } from './change-body.ts';
import { readFields, type RequestFields } from './fields.ts';
import type { InputBounds } from './inputs.ts';
import type { RequestForm } from './request-form.ts';

/** Options for reading a body. */
export interface ReadJob {
  readonly form: RequestForm;
  readonly bounds: InputBounds;
  /** Members that do not matter for the response cache; null if the cache is not used. */
  readonly meaningWithout: readonly string[] | null;
  /** The request has an Idempotency-Key, which needs the body's hash. */
  readonly wantsHash: boolean;
  /** Changes of bodies, by lower-case name of the model. */
  readonly changes: ReadonlyMap<string, RequestChanges>;
  /** Another model may answer. The Idempotency-Key treats this as a different request. */
  readonly allowsFallback: boolean;
}

/**
 * Returns the bytes of a body as latin1, one character per byte.
 * @throws AppError invalid_request_error
 */
function textOf(body: Buffer): string {
  if (!isUtf8(body)) throw new AppError('invalid_request_error', { message: 'The request body is not UTF-8.' });
  return body.toString('latin1');
}

/**
 * Reads a body. All work that grows with the body's length is done here, so that another thread can do it in place of
 * the event loop.
 * @throws AppError invalid_request_error, invalid_value, model_not_found
 */
export function readRequest(
  body: Buffer,
  { form, bounds, changes, meaningWithout, wantsHash, allowsFallback }: ReadJob,
): RequestFields {
  const text = textOf(body);
  const given = readFields(text, form, bounds);
  const change = changes.get(given.model.toLowerCase());
  const changed = change === undefined ? text : changeBody({ text, members: given.members }, form, change);
  // Read again, so that limits, the hold and the bill are those of the changed body.
  const fields = changed === text ? given : { ...readFields(changed, form, bounds), isChanged: true };
  if (meaningWithout !== null) fields.meaning = digestMembers(changed, meaningWithout);
  if (wantsHash) {
    const head = allowsFallback ? `${form.path}\n${allowFallbackHeader}\n` : `${form.path}\n`;
    fields.hash = createHash('sha256').update(head).update(text, 'latin1').digest('hex');
  }
  return fields;
}
