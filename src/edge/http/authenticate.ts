import { AppError } from '#base/errors.ts';
import { parseId } from '#base/id.ts';
import type { Accounts, Project } from '#core/accounts/accounts.ts';
import type { ApiKey, Keys } from '#core/keys/keys.ts';
import type { Caller } from './env.ts';

/** What is read of a request: Node's list of alternating names and values, as they came over the wire. */
export interface RawRequest {
  readonly rawHeaders: readonly string[];
}

export interface Authenticator {
  /**
   * Who calls. Answers at once when key and project are known, which is what the request path lives on.
   * @throws AppError unauthorized; invalid_request_error when X-Project-ID names no project of the organization;
   *   billing_unavailable when the key is not known yet and Postgres is away
   */
  authenticate(request: RawRequest): Caller | Promise<Caller>;
}

const bearerPattern = /^bearer +([\x21-\x7e]{1,512}) *$/i;

function unauthorized(message?: string): AppError {
  const headers = { 'www-authenticate': 'Bearer' };
  return new AppError('unauthorized', message === undefined ? { headers } : { message, headers });
}

/** The only value of a header, null when it is not there. Node keeps the first of two; here two are told apart. */
function headerValues(request: RawRequest, lowerName: string): string[] {
  const values: string[] = [];
  const { rawHeaders } = request;
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index];
    if (name === undefined || name.length !== lowerName.length || name.toLowerCase() !== lowerName) continue;
    values.push(rawHeaders[index + 1] ?? '');
  }
  return values;
}

/**
 * The secret of "Authorization: Bearer <secret>" (RFC 6750 §2.1), the only scheme.
 * @throws AppError unauthorized
 */
function readBearer(request: RawRequest): string {
  const values = headerValues(request, 'authorization');
  if (values.length > 1) throw unauthorized('Send one Authorization header, not several.');
  const secret = bearerPattern.exec(values[0] ?? '')?.[1];
  if (secret === undefined) throw unauthorized();
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
    message: 'X-Project-ID: this organization has no such project.',
    param: 'X-Project-ID',
  });
}

export interface AuthenticatorParts {
  readonly keys: Pick<Keys, 'verify' | 'touch'>;
  readonly accounts: Pick<Accounts, 'findProject'>;
}

/** Reads who calls from a request's headers. */
export function createAuthenticator({ keys, accounts }: AuthenticatorParts): Authenticator {
  const withProject = (key: ApiKey, project: Project | null): Caller => {
    if (project === null) throw unknownProject();
    keys.touch(key.id);
    return { key, project };
  };
  const withKey = (request: RawRequest, key: ApiKey | null): Caller | Promise<Caller> => {
    if (key === null) throw unauthorized('This API key is not valid: it is mistyped, unknown, revoked or expired.');
    const project = accounts.findProject(key.organizationId, readProjectId(request) ?? key.projectId);
    return project instanceof Promise ? project.then((found) => withProject(key, found)) : withProject(key, project);
  };
  return {
    authenticate(request) {
      const key = keys.verify(readBearer(request));
      return key instanceof Promise ? key.then((found) => withKey(request, found)) : withKey(request, key);
    },
  };
}

/**
 * An archived project takes no new requests: the request path asks this, the JSON API does not.
 * @throws AppError invalid_request_error
 */
export function requireOpenProject({ project }: Caller): void {
  if (!project.archived) return;
  throw new AppError('invalid_request_error', {
    message: `The project "${project.name}" is archived and takes no new requests; send X-Project-ID of another one.`,
    param: 'X-Project-ID',
  });
}
