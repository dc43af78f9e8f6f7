import type { TokenWatermarks } from '#core/gateways/gateways.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { countedMax } from '#edge/inference/engine/engine.ts';

interface WatermarkParts {
  readonly tokenWatermarks: TokenWatermarks;
}

/**
 * Notes the most tokens that the model's engine may count, before the engine gets the request.
 * @returns void if there is nothing to wait for
 */
export function raiseWatermark(parts: WatermarkParts, call: Call, request: InferenceRequest): Promise<void> | void {
  // Engines do not count requests that their tokenizer answers.
  if (call.endpoint.isFree === true) return;
  const { id } = request.model.engine;
  const most = countedMax(call, request);
  call.held.tokenWatermarks.push([id, most]);
  return parts.tokenWatermarks.enter(id, most);
}

/** Removes the note, once the record has the actual count. */
export function releaseWatermark({ tokenWatermarks }: WatermarkParts, { held }: Call): void {
  for (const [id, most] of held.tokenWatermarks.splice(0)) tokenWatermarks.leave(id, most);
}
