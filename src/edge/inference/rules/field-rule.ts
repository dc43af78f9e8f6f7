import { AppError } from '#base/errors.ts';
import type { JsonMember } from '#base/json/json.ts';
import type { EngineDefinition, Model } from '#core/catalog/catalog.ts';
import type { DroppedTools, Endpoint, RequestFields } from '#edge/inference/request/request.ts';

/** Facts that a rule about a field can see. */
export interface RuleRequest {
  readonly fields: RequestFields;
  readonly endpoint: Endpoint;
  readonly engine: EngineDefinition;
  readonly model: Model;
  /** The tools that were left out of the request. */
  readonly dropped: DroppedTools | null;
}

/**
 * Rejects a field, or lets it pass. Called for a field that is in the body and not null.
 * @throws AppError unsupported_parameter, invalid_value, invalid_request_error, with the field in `param`
 */
export type FieldRule = (request: RuleRequest, member: JsonMember) => void;

export const refuse = (param: string, message: string): AppError =>
  new AppError('unsupported_parameter', { message, param });

export const notSupported = (param: string): AppError => refuse(param, `"${param}" is not supported for this model.`);
