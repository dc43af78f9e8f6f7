import { AppError } from '#base/errors.ts';
import { parseId } from '#base/id.ts';
import type { Throttle } from '#base/redis/redis.ts';
import { type Accounts, isProjectSeen, type Project } from '#core/accounts/accounts.ts';
import type { BudgetCache } from '#core/budgets/budgets.ts';
import { type ApiKey, keyPrincipal, type KeyRejection, type Keys } from '#core/keys/keys.ts';
import type { ClientAddress } from './client-address.ts';
import type { Caller, InferenceCaller } from './http-context.ts';
import { headerValues, type RawRequest } from './raw-request.ts';

export interface Authenticator<C extends Caller = Caller> {
  /**
   * Returns the caller. Returns without a promise if key and project are known, which keeps the request path fast.
   * @throws AppError unauthorized; organization_suspended; invalid_request_error when X-Project-ID names no project
   * that the key's person sees; insufficient_scope when the key is confined to another project; database_unavailable
   * when the key is not known yet and PostgreSQL is unavailable; rate_limit_exceeded for another wrong key from an
   * address that tried many
   */
  authenticate(request: RawRequest): C | Promise<C>;
}

export interface InferenceAuthenticator extends Authenticator<InferenceCaller> {
  /**
   * Returns the key of an authenticated request in its present state, after something was awaited.
   * @throws AppError unauthorized, organization_suspended
   */
  keyNow(request: RawRequest, caller: InferenceCaller): ApiKey;
}

const bearerPattern = /^bearer +([\x21-\x7e]{1,512}) *$/i;

/** Returns the 401 of a key that is not accepted, or of a request without one. @param reason for the log */
export function unauthorized(message?: string, reason?: KeyRejection): AppError {
  const headers = { 'www-authenticate': 'Bearer' };
  return new AppError('unauthorized', {
    headers,
    ...(message !== undefined && { message }),
    ...(reason && { reason }),
  });
}

const notInApiKey =
  'Send the API key as "Authorization: Bearer <key>", not as x-api-key: update Anthropic\'s SDK (TypeScript 1.0, Python 2.14), or set authToken in place of apiKey. In Claude Code, set ANTHROPIC_AUTH_TOKEN.';

/**
 * Returns the secret of "Authorization: Bearer <secret>" (RFC 6750 §2.1), the only scheme.
 * @throws AppError unauthorized
 */
function readBearer(request: RawRequest): string {
  const values = headerValues(request, 'authorization');
  if (values.length > 1) throw unauthorized('The request has several Authorization headers. Send one.');
  const secret = bearerPattern.exec(values[0] ?? '')?.[1];
  if (secret === undefined) throw unauthorized(headerValues(request, 'x-api-key').length > 0 ? notInApiKey : undefined);
  return secret;
}

function readProjectId(request: RawRequest): string | null {
  const values = headerValues(request, 'x-project-id');
  if (values.length === 0) return null;
  const id = values.length === 1 ? parseId('proj', values[0] ?? '') : null;
  if (id === null) throw unknownProject();
  return id;
}

function unknownProject(): AppError {
  return new AppError('invalid_request_error', {
    message: 'X-Project-ID: project not found in this organization.',
    param: 'X-Project-ID',
  });
}

/** Rejects a key that is confined to its project: by its own setting, otherwise while its project has a hard budget. */
function requireUnconfined(key: ApiKey, budgetCache: AuthenticatorParts['budgetCache']): void {
  if (!(key.confined ?? budgetCache.boundsProject(key.organizationId, key.projectId))) return;
  throw new AppError('insufficient_scope', {
    message: 'This API key works in its own project only. Send no X-Project-ID, or use a key of the other project.',
    param: 'X-Project-ID',
  });
}

export interface AuthenticatorParts {
  readonly keys: Pick<Keys, 'verify' | 'touch' | 'findRejection' | 'untilFresh'>;
  readonly accounts: Pick<Accounts, 'findProject'>;
  readonly budgetCache: Pick<BudgetCache, 'boundsProject'>;
  /** Counts wrong keys per address. */
  readonly wrongKeys: WrongKeys;
}

interface WrongKeys {
  readonly throttle: Throttle;
  readonly addressOf: ClientAddress;
}

/**
 * Rejects an unknown key, and counts the attempt against its address. The attempt is counted after the look-up, so that
 * a valid key is not slowed down by other requests from its address. Revoked and expired keys do not count.
 */
async function refuseWrongKey(request: RawRequest, { throttle, addressOf }: WrongKeys): Promise<never> {
  const { allowed, resetMs } = await throttle.hit(addressOf(request));
  if (allowed) throw notValid('key_unknown');
  throw new AppError('rate_limit_exceeded', {
    message: 'Too many requests with invalid API keys from this address. Wait a minute, then send a valid key.',
    reason: 'HEADGATE_WRONG_KEYS_PER_MINUTE',
    headers: { 'retry-after': String(Math.max(1, Math.ceil(resetMs / 1000))) },
  });
}

/** @throws AppError organization_suspended */
export function requireActive({ organizationStatus }: ApiKey): void {
  if (organizationStatus === 'suspended') throw new AppError('organization_suspended');
}

/** One text for clients; the log has the reason. */
const notValid = (reason: KeyRejection): AppError =>
  unauthorized('Invalid API key: mistyped, unknown, revoked or expired.', reason);

/** Creates an authenticator that reads the caller from a request's API key. */
export function createAuthenticator({
  keys,
  accounts,
  budgetCache,
  wrongKeys,
}: AuthenticatorParts): InferenceAuthenticator {
  const withProject = (key: ApiKey, project: Project | null): InferenceCaller => {
    const ownId = key.seesAllProjects ? null : key.projectId;
    if (project === null || !isProjectSeen(project, { organizationId: key.organizationId, ownId })) {
      throw unknownProject();
    }
    keys.touch(key.id);
    return keyPrincipal(key, project);
  };
  /** Returns the key in its present state: it may have been revoked, or its organization suspended, during an await. */
  const stillValid = (secret: string, key: ApiKey): ApiKey => {
    const known = keys.verify(secret);
    if (known instanceof Promise) return key;
    if (known === null) throw notValid(keys.findRejection(secret));
    requireActive(known);
    return known;
  };
  const withKey = (
    request: RawRequest,
    secret: string,
    key: ApiKey | null,
  ): InferenceCaller | Promise<InferenceCaller> => {
    if (key === null) {
      const why = keys.findRejection(secret);
      if (why !== 'key_unknown') throw notValid(why);
      return refuseWrongKey(request, wrongKeys);
    }
    requireActive(key);
    const projectId = readProjectId(request) ?? key.projectId;
    if (projectId !== key.projectId) {
      // A service account belongs to one project, so no other project exists for its keys.
      if (key.serviceAccountId !== null) throw unknownProject();
      requireUnconfined(key, budgetCache);
    }
    const project = accounts.findProject(key.organizationId, projectId);
    if (!(project instanceof Promise)) return withProject(key, project);
    return project.then((found) => withProject(stillValid(secret, key), found));
  };
  const withSecret = (request: RawRequest, secret: string): InferenceCaller | Promise<InferenceCaller> => {
    const key = keys.verify(secret);
    if (key instanceof Promise) return key.then((found) => withKey(request, secret, found));
    return withKey(request, secret, key);
  };
  return {
    authenticate(request) {
      const secret = readBearer(request);
      const fresh = keys.untilFresh();
      return fresh === null ? withSecret(request, secret) : fresh.then(() => withSecret(request, secret));
    },
    keyNow: (request, { key }) => stillValid(readBearer(request), key),
  };
}

/**
 * Rejects requests for an archived project. Only inference checks this; the JSON API still serves keys of the project.
 * @throws AppError invalid_request_error
 */
export function requireOpenProject({ project }: Caller): void {
  if (!project.archived) return;
  throw new AppError('invalid_request_error', {
    message: `The project "${project.name}" is archived and accepts no new requests. Send the X-Project-ID of another project.`,
    param: 'X-Project-ID',
  });
}
