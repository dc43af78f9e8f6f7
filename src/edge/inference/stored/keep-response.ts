import { putMembers } from '#base/json/json.ts';
import type { Log } from '#base/log.ts';
import type { StoredResponses } from '#core/responses/responses.ts';
import { compress } from '#core/stored-requests/stored-requests.ts';
import { type Outcome, textOf } from '#edge/inference/answer/answer.ts';
import { type Call, hasRecord, type InferenceRequest, type Storing } from '#edge/inference/call/call.ts';
import { ownItems } from './conversation.ts';

/** A larger response is sent as the engine wrote it, and not stored. */
const storedBytesMax = 67_108_864;

/** Keeps the input of a request for its response. Call before the body is released, once the request is admitted. */
export function keepInput(call: Call, { fields }: InferenceRequest): void {
  const { storing } = call.found;
  if (storing?.isStored !== true) return;
  const list = ownItems(call, fields);
  storing.own = null;
  const packed = compress(list);
  // A rejection is handled where the result is awaited.
  packed.catch(() => undefined);
  storing.input = { packed, bytes: list.length };
}

interface KeepParts {
  readonly storedResponses: StoredResponses;
  readonly log: Log;
}

/**
 * Prepares a complete response to be stored. It is stored after its charge is recorded, so that none is kept that nobody
 * paid for, and before its last bytes are sent, so that the next request may continue it at once, on any gateway. If
 * PostgreSQL does not answer, the client gets the response, which is not stored.
 */
export function prepareResponse(parts: KeepParts, call: Call, outcome: Outcome): Outcome {
  const { found } = call;
  const { request, storing } = found;
  if (request === null || storing === null || outcome.kind !== 'completed' || !hasRecord(found)) return outcome;
  const text = textOf(outcome.last, storedBytesMax);
  if (text === null) return outcome;
  // The frames of a stream show these members already.
  const last = request.fields.stream ? text : putMembers(text, storing.shown);
  const shown = { ...outcome, last };
  const keep = (): Promise<void> => store(parts, call, { request, storing }, shown);
  if (storing.isStored) storing.keep = keep;
  return shown;
}

interface Stored {
  readonly request: InferenceRequest;
  readonly storing: Storing;
}

async function store(
  { storedResponses, log }: KeepParts,
  call: Call,
  { request, storing }: Stored,
  { last, usage }: Outcome & { readonly last: string },
): Promise<void> {
  const { endpoint, requestId } = call;
  const { caller, fields } = request;
  const response = fields.stream
    ? endpoint.answers.mergeFrames('', { last, usage, choices: 1 })
    : endpoint.answers.plainAnswer(last, fields.wantsCost);
  // A response from the cache was not sent to an engine.
  if (storing.input === null) keepInput(call, request);
  if (response === null || storing.input === null) return;
  const { packed, bytes } = storing.input;
  try {
    await storedResponses.keep({
      id: requestId,
      organizationId: caller.key.organizationId,
      projectId: caller.project.id,
      previousId: storing.previousId,
      input: await packed,
      inputBytes: bytes,
      response: Buffer.from(response, 'latin1'),
    });
  } catch (error) {
    log.warn({ err: error, requestId }, 'a response was not stored, and cannot be continued by its id');
  }
}
