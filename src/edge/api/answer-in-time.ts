import type { Next } from 'hono';
import { AppError } from '#base/errors.ts';

/** A statement that is answered later than this was sent on a connection that is lost, or waits for what is not ours. */
const answerMsMax = 8000;

/**
 * A change is answered in time also where PostgreSQL says nothing: nobody knows then whether it was made.
 * @throws AppError billing_unavailable when it is late; what runs on is left alone
 */
export async function answerInTime(next: Next): Promise<void> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const message =
    'PostgreSQL did not answer in time. Whether this was done is not known: look before it is sent once more.';
  const timer = setTimeout(() => reject(new AppError('billing_unavailable', { message })), answerMsMax);
  try {
    await Promise.race([next(), late]);
  } finally {
    clearTimeout(timer);
  }
}
