import type { Contents } from '#core/requests/requests.ts';
import { beginningOf, type Outcome } from '#edge/inference/answer/answer.ts';
import { type Call, isBooked } from '#edge/inference/call/call.ts';

/** Stores the request and its answer, for a request with a record whose key stores requests. */
export function keepContent(contents: Contents, call: Call, reported: Outcome): void {
  const { found, requestId } = call;
  const { request, reuse } = found;
  if (request === null || !request.caller.key.storeRequests || !isBooked(found)) return;
  const { caller, fields } = request;
  contents.add({
    requestId,
    organizationId: caller.key.organizationId,
    keyId: caller.key.id,
    request: fields.text,
    // One byte beyond the bound shows that there was more.
    response: (reuse?.transcript.text ?? '') + lastOf(call, reported, contents.bodyBytesMax + 1),
    responseTruncated: reuse?.transcript.whole === false,
  });
}

/**
 * Returns the bytes that were sent at the end: the last frames, a JSON answer, an error in one of two forms, or
 * nothing.
 */
function lastOf({ answer, endpoint, found }: Call, { error, last }: Outcome, bytesMax: number): string {
  if (error === null) return beginningOf(last, bytesMax);
  return answer.frameSent && found.reuse !== null
    ? endpoint.answers.errorFrames(error)
    : endpoint.answers.errorBody(error);
}
