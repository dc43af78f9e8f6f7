import { AppError } from '#base/errors.ts';
import { within } from '#base/within.ts';

/** Time that a request waits for a query. The driver itself may wait as long as the database says nothing. */
const waitMs = 10_000;

/** @throws AppError database_unavailable if there is no answer in time, and the errors of the query */
export function answered<T>(query: PromiseLike<T>): Promise<T> {
  return within(query, waitMs, () => {
    throw new AppError('database_unavailable', { cause: new Error(`no answer within ${waitMs} ms`) });
  });
}
