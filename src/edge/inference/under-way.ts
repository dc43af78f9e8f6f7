import type { UnderWay } from '#core/gateways/gateways.ts';
import type { Call, InferenceRequest } from './call.ts';
import { countedMax } from './counted-max.ts';

interface UnderWayParts {
  readonly underWay: UnderWay;
}

/** Notes what the engine of a model may count of a request, before it gets it. @returns void where nothing is waited for */
export function enterUnderWay(parts: UnderWayParts, call: Call, request: InferenceRequest): Promise<void> | void {
  // No engine counts what its tokenizer answers.
  if (call.endpoint.isFree === true) return;
  const { id } = request.model.engine;
  const most = countedMax(call, request);
  call.held.underWay.push([id, most]);
  return parts.underWay.enter(id, most);
}

/** The books have what it came to. */
export function leaveUnderWay({ underWay }: UnderWayParts, { held }: Call): void {
  for (const [id, most] of held.underWay.splice(0)) underWay.leave(id, most);
}
