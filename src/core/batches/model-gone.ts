import type { Clock } from '#base/clock.ts';
import type { Asking, BatchKey } from './asking.ts';
import type { Batch, BatchError } from './batch.ts';

/** What a batch waits for whose model is not offered: it was withdrawn, or its key may not use it any more. */
export const modelGoneCode = 'model_not_found';
/** It may have been withdrawn for a change of its file. */
const goneMsMax = 3_600_000;
/** How often it is looked for. */
export const modelLookMs = 10_000;

/**
 * Whether the model of a batch that has waited for it is there again.
 * @returns `here`; `gone` for another turn; the error that the batch fails with, once it was gone for an hour
 */
export async function lookForModel(
  { asking, clock }: { readonly asking: Asking; readonly clock: Clock },
  { endpoint, model, waitingFor, waitingSinceMs }: Batch,
  key: BatchKey,
): Promise<'here' | 'gone' | BatchError> {
  if (model === null || waitingFor !== modelGoneCode) return 'here';
  const why = await asking.refuseModel(key, endpoint, model);
  if (why === null) return 'here';
  if (clock.now() - (waitingSinceMs ?? clock.now()) < goneMsMax) return 'gone';
  const message = `Its model was not offered to its key for an hour: ${why}`;
  return { code: modelGoneCode, message, param: null, line: null };
}
