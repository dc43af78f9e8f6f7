import type { Clock } from '#base/clock.ts';
import type { Asking, BatchKey } from './dependencies.ts';
import type { Batch, BatchError } from './batch.ts';

/** Wait code of a batch whose model is not offered: the model was withdrawn, or the key may not use it any more. */
export const modelNotFoundCode = 'model_not_found';
/** Milliseconds to wait for the model: it may be withdrawn only while its file is changed. */
const unavailableMsMax = 3_600_000;
/** Milliseconds between checks for the model. */
export const modelPollMs = 10_000;

/**
 * Checks if the model of a waiting batch is offered again.
 * @returns `here`; `gone` for another turn; the error that the batch fails with after an hour without the model
 */
export async function checkModel(
  { asking, clock }: { readonly asking: Asking; readonly clock: Clock },
  { endpoint, model, waitingFor, waitingSinceMs }: Batch,
  key: BatchKey,
): Promise<'here' | 'gone' | BatchError> {
  if (model === null || waitingFor !== modelNotFoundCode) return 'here';
  const why = await asking.refuseModel(key, endpoint, model);
  if (why === null) return 'here';
  if (clock.now() - (waitingSinceMs ?? clock.now()) < unavailableMsMax) return 'gone';
  const message = `The model was unavailable to the API key of this batch for an hour: ${why}`;
  return { code: modelNotFoundCode, message, param: null, line: null };
}
