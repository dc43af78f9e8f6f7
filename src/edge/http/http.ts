/** The shared parts of every HTTP surface of the gateway: callers, request ids, bodies, and answers to errors. */
export { type Authenticator, type InferenceAuthenticator, requireOpenProject, unauthorized } from './authenticate.ts';
export { type ClientAddress, createIsSecure, type IsSecure } from './client-address.ts';
export { createHttpGuards, type HttpGuards } from './http-guards.ts';
export { AtOnce } from './concurrency-counter.ts';
export type { BodyHold, BodyShares } from './body-shares.ts';
export { type BodyLimits, ClientGoneError, collectBody, tooLarge } from './collect-body.ts';
export { codingOf } from './content-coding.ts';
export { handleClientError, isAddressed, refuseExpectation, refuseSurplus, refuseUnaddressed } from './client-error.ts';
export {
  authorOf,
  type Caller,
  callerId,
  type HttpContext,
  type HttpEnv,
  type Identity,
  type InferenceCaller,
} from './http-context.ts';
export { dropFailure, type Problem, toAppError, ValidationError } from './failure.ts';
export { createHeldKeys, type HeldKeys } from './delegated-keys.ts';
export { type Cors, createCors } from './cors.ts';
export { drainBody } from './drain-body.ts';
export { createShowLimits, limitHeaders, type ShowLimits } from './limit-headers.ts';
export { installFallbacks, requestId } from './fallbacks.ts';
export { jsonBody, smallJsonBody } from './json-body.ts';
export { createMultipartBody } from './multipart-body.ts';
export { type PartSink, readMultipart } from './multipart-stream.ts';
export { streamedBody } from './streamed-body.ts';
export { knownQuery } from './known-query.ts';
export { type BodyReader, createReadBody, wrongBody } from './read-body.ts';
export { type ErrorShape, groupOf, isAnthropicList, routeGroups, Routes } from './routes.ts';
export { createOwnExchange } from './in-process-request.ts';
export { type AskApi, createOnBehalf, type OnBehalf, type OpenApi, type OwnAnswer } from './on-behalf.ts';
