/**
 * What every HTTP surface of the gateway shares: who calls, the request's id, bodies, and how errors are answered.
 */
export {
  type Authenticator,
  type AuthenticatorParts,
  createAuthenticator,
  type RawRequest,
  readBearer,
  requireOpenProject,
} from './authenticate.ts';
export { handleClientError } from './client-error.ts';
export { actorOf, type Caller, type HttpContext, type HttpEnv } from './env.ts';
export {
  createFailureHandler,
  genericEnvelope,
  isGenericPath,
  type Problem,
  toAppError,
  ValidationError,
} from './failure.ts';
export { installFallbacks, requestId } from './fallbacks.ts';
export { jsonBody } from './json-body.ts';
