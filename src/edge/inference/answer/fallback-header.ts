import type { IncomingMessage } from 'node:http';
import { AppError } from '#base/errors.ts';
import type { Answer } from './client-answer.ts';

/** Header with which a request allows another model to answer. */
export const allowFallbackHeader = 'x-headgate-allow-fallback';
/** Header that names the answering model, if it is not the requested one. */
const fallbackHeader = 'x-headgate-fallback';

/** @throws AppError invalid_value, the header in `param` */
export function readAllowsFallback({ headers }: IncomingMessage): boolean {
  const given = headers[allowFallbackHeader];
  if (given === undefined || given === 'false') return false;
  if (given === 'true') return true;
  const message = `${allowFallbackHeader} must be true or false.`;
  throw new AppError('invalid_value', { message, param: allowFallbackHeader });
}

/** Names the answering model. If the head of a stream is already sent, a comment does. */
export function nameFallback(answer: Answer, modelId: string): void {
  answer.setHeader(fallbackHeader, modelId);
  answer.setRemark(`${fallbackHeader}: ${modelId}`);
}

/** Removes the name: no model answers in place of another. */
export function nameNoFallback(answer: Answer): void {
  answer.dropHeader(fallbackHeader);
  answer.setRemark('');
}
