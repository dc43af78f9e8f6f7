import type { UnderWay } from '#core/gateways/gateways.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { countedMax } from '#edge/inference/engine/engine.ts';

interface UnderWayParts {
  readonly underWay: UnderWay;
}

/**
 * Notes the most tokens that the model's engine may count, before the engine gets the request.
 * @returns void if there is nothing to wait for
 */
export function enterUnderWay(parts: UnderWayParts, call: Call, request: InferenceRequest): Promise<void> | void {
  // Engines do not count requests that their tokenizer answers.
  if (call.endpoint.isFree === true) return;
  const { id } = request.model.engine;
  const most = countedMax(call, request);
  call.held.underWay.push([id, most]);
  return parts.underWay.enter(id, most);
}

/** Removes the note, once the record has the actual count. */
export function leaveUnderWay({ underWay }: UnderWayParts, { held }: Call): void {
  for (const [id, most] of held.underWay.splice(0)) underWay.leave(id, most);
}
