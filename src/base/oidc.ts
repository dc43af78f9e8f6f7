import {
  allowInsecureRequests,
  authorizationCodeGrant,
  AuthorizationResponseError,
  buildAuthorizationUrl,
  calculatePKCECodeChallenge,
  ClientSecretBasic,
  ClientSecretPost,
  Configuration,
  discovery,
  enableNonRepudiationChecks,
  fetchUserInfo,
  randomNonce,
  randomPKCECodeVerifier,
  randomState,
  ResponseBodyError,
  type ServerMetadata,
  WWWAuthenticateChallengeError,
} from 'openid-client';
import type { Log } from './log.ts';

/** A sign-in provider by OpenID Connect: authorization code with PKCE, state and nonce. */
export interface Oidc {
  /** Returns the URL to send a browser to, and the secrets that the browser must bring back. @throws OidcError */
  attempt(): Promise<{ readonly url: string; readonly secrets: OidcSecrets }>;
  /**
   * Returns the person who came back.
   * @param query of the address that the provider sent the browser to: `?code=…&state=…`
   * @throws OidcError
   */
  finish(query: string, secrets: OidcSecrets): Promise<OidcPerson>;
}

/** Secrets of one attempt, each in base64url. Only the browser of the attempt keeps them. */
export interface OidcSecrets {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
}

/** A person as a provider describes them. Issuer and subject together identify a person permanently. */
export interface OidcPerson {
  readonly issuer: string;
  readonly subject: string;
  readonly email: string | null;
  readonly isEmailVerified: boolean;
  readonly name: string | null;
}

/**
 * `rejected`: the person or the provider denied the sign-in, the ID token is invalid, or the attempt is another
 * browser's. `unavailable`: the provider does not work, or does not accept this client.
 */
export class OidcError extends Error {
  readonly kind: 'rejected' | 'unavailable';

  constructor(kind: 'rejected' | 'unavailable', cause: unknown) {
    super(`OpenID Connect sign-in: ${kind}`, { cause });
    this.name = 'OidcError';
    this.kind = kind;
  }
}

export interface OidcOptions {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** URL to which the provider sends browsers back. */
  readonly redirectUri: string;
  readonly log: Log;
}

const patienceSeconds = 10;

const isPlain = (issuer: string): boolean => new URL(issuer).protocol === 'http:';

async function readMetadata({ issuer, clientId }: OidcOptions): Promise<ServerMetadata> {
  const execute = isPlain(issuer) ? [allowInsecureRequests] : [];
  const options = { timeout: patienceSeconds, execute };
  const found = await discovery(new URL(issuer), clientId, undefined, undefined, options);
  return found.serverMetadata();
}

/**
 * Creates a client of the provider. It reads the provider's keys once and keeps them for minutes, so that each sign-in
 * needs its own to know a key that the provider has just added.
 */
function createClient(metadata: ServerMetadata, { issuer, clientId, clientSecret }: OidcOptions): Configuration {
  // The default of OpenID Connect Discovery 1.0, section 3, where a provider does not say.
  const methods = metadata.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
  const method = methods.includes('client_secret_basic') ? ClientSecretBasic : ClientSecretPost;
  const client = new Configuration(metadata, clientId, clientSecret, method(clientSecret));
  client.timeout = patienceSeconds;
  // Verifies the signature of ID tokens, which openid-client leaves to TLS otherwise.
  enableNonRepudiationChecks(client);
  if (isPlain(issuer)) allowInsecureRequests(client);
  return client;
}

const codeOf = (error: unknown): string => (error instanceof Error && 'code' in error ? String(error.code) : '');

/** Returns what the library says about the value that it rejected, such as `{ body }` or `{ claims }`. */
function rejectedValueOf(error: unknown): unknown {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error ? cause.cause : cause;
}

/** Separates what a person can repeat from what only the provider or the operator can fix. */
function kindOf(error: unknown): OidcError['kind'] {
  if (error instanceof OidcError) return error.kind;
  if (error instanceof AuthorizationResponseError) {
    return /^access_denied$|_required$/.test(error.error) ? 'rejected' : 'unavailable';
  }
  if (error instanceof ResponseBodyError) return error.error === 'invalid_grant' ? 'rejected' : 'unavailable';
  const code = codeOf(error);
  if (code === 'OAUTH_INVALID_RESPONSE') {
    const value = rejectedValueOf(error);
    // A body is a whole response of the provider; other values are of the browser's return or the ID token.
    return typeof value === 'object' && value !== null && 'body' in value ? 'unavailable' : 'rejected';
  }
  return /^OAUTH_(?:JWT_|KEY_SELECTION)/.test(code) ? 'rejected' : 'unavailable';
}

const providerErrorMax = 200;

/** Names the error of the provider: its OAuth error, its status, or the problem of its answer. Contains no secret. */
function providerErrorOf(error: unknown): string {
  if (error instanceof ResponseBodyError || error instanceof AuthorizationResponseError) return error.error;
  if (error instanceof WWWAuthenticateChallengeError) {
    return error.cause.find(({ parameters }) => parameters.error)?.parameters.error ?? `HTTP ${error.status}`;
  }
  if (!(error instanceof Error)) return 'unknown';
  const { message, cause } = error;
  if (cause instanceof Response) return `HTTP ${cause.status}: ${message}`;
  return cause instanceof Error && cause.message !== '' ? cause.message : message;
}

const logTexts = {
  rejected: 'an OpenID Connect sign-in was rejected',
  unavailable:
    'the OpenID Connect provider failed; check HEADGATE_OIDC_ISSUER, HEADGATE_OIDC_CLIENT_ID and ' +
    'HEADGATE_OIDC_CLIENT_SECRET',
} as const;

function logFailure(log: Log, error: unknown, kind: OidcError['kind']): void {
  const code = codeOf(error);
  const providerError = providerErrorOf(error).slice(0, providerErrorMax);
  // Causes of the library's own errors may quote a response that contains a token.
  log.warn({ providerError, ...(code.startsWith('OAUTH_') ? { code } : { err: error }) }, logTexts[kind]);
}

/** The longest subject of OpenID Connect Core 1.0, section 2. PostgreSQL stores neither NUL nor half a surrogate pair. */
const subjectPattern = /^[^\p{Cc}\p{Cs}]{1,255}$/u;

const textOf = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);

export function createOidc(options: OidcOptions): Oidc {
  const { redirectUri, log } = options;
  let metadata: Promise<ServerMetadata> | null = null;
  const asking = async <T>(ask: (client: Configuration) => Promise<T>): Promise<T> => {
    try {
      metadata ??= readMetadata(options);
      return await ask(createClient(await metadata, options));
    } catch (error) {
      const kind = kindOf(error);
      // The provider may have moved its endpoints: the next attempt reads the metadata again.
      if (kind === 'unavailable') metadata = null;
      logFailure(log, error, kind);
      throw new OidcError(kind, error);
    }
  };
  return {
    attempt: () =>
      asking(async (client) => {
        const secrets = { state: randomState(), nonce: randomNonce(), verifier: randomPKCECodeVerifier() };
        const url = buildAuthorizationUrl(client, {
          redirect_uri: redirectUri,
          scope: 'openid email profile',
          state: secrets.state,
          nonce: secrets.nonce,
          code_challenge: await calculatePKCECodeChallenge(secrets.verifier),
          code_challenge_method: 'S256',
        });
        return { url: url.href, secrets };
      }),
    finish: (query, { state, nonce, verifier }) =>
      asking(async (client) => {
        const tokens = await authorizationCodeGrant(client, new URL(query, redirectUri), {
          pkceCodeVerifier: verifier,
          expectedState: state,
          expectedNonce: nonce,
          idTokenExpected: true,
        });
        const claims = tokens.claims();
        if (claims === undefined || !subjectPattern.test(claims.sub)) {
          throw new OidcError('rejected', new Error('unexpected JWT "sub" (subject) claim value'));
        }
        const hasEmail = typeof claims['email'] === 'string';
        const userInfo = hasEmail ? claims : await fetchUserInfo(client, tokens.access_token, claims.sub);
        return {
          issuer: claims.iss,
          subject: claims.sub,
          email: textOf(userInfo['email']),
          isEmailVerified: userInfo['email_verified'] === true,
          name: textOf(userInfo['name']) ?? textOf(claims['name']),
        };
      }),
  };
}
