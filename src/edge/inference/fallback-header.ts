import type { IncomingMessage } from 'node:http';
import { AppError } from '#base/errors.ts';
import type { Answer } from './answer.ts';

/** By which a request says that another model may answer it. */
export const allowFallbackHeader = 'x-headgate-allow-fallback';
/** Names the model that has, where it is not the one that was asked for. */
const fallbackHeader = 'x-headgate-fallback';

/** @throws AppError invalid_value, the header in `param` */
export function readAllowsFallback({ headers }: IncomingMessage): boolean {
  const given = headers[allowFallbackHeader];
  if (given === undefined || given === 'false') return false;
  if (given === 'true') return true;
  const message = `${allowFallbackHeader} must be true or false.`;
  throw new AppError('invalid_value', { message, param: allowFallbackHeader });
}

/** Says which model answers. In a stream whose head is out already a comment does. */
export function nameFallback(answer: Answer, modelId: string): void {
  answer.setHeader(fallbackHeader, modelId);
  answer.setRemark(`${fallbackHeader}: ${modelId}`);
}

/** None answers in the place of another. */
export function nameNoFallback(answer: Answer): void {
  answer.dropHeader(fallbackHeader);
  answer.setRemark('');
}
