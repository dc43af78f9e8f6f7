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
  fetchUserInfo,
  randomNonce,
  randomPKCECodeVerifier,
  randomState,
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

const kindTexts = { refused: 'rejected', away: 'provider unreachable' } as const;

/** `refused`: provider or person rejected, or the attempt is another browser's. `away`: the provider is unreachable. */
export class OidcError extends Error {
  readonly kind: 'refused' | 'away';

  constructor(kind: 'refused' | 'away', cause: unknown) {
    super(`OpenID Connect sign-in: ${kindTexts[kind]}`, { cause });
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

/** Reads the provider's metadata. Called when it is first needed, and again after a failure. */
async function configure({ issuer, clientId, clientSecret }: OidcOptions): Promise<Configuration> {
  const server = new URL(issuer);
  const isPlain = server.protocol === 'http:';
  const execute = isPlain ? [allowInsecureRequests] : [];
  const found = await discovery(server, clientId, clientSecret, undefined, { timeout: patienceSeconds, execute });
  const metadata = found.serverMetadata();
  // The default of OpenID Connect Discovery 1.0, section 3, where a provider does not say.
  const methods = metadata.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
  const method = methods.includes('client_secret_basic') ? ClientSecretBasic : ClientSecretPost;
  const configuration = new Configuration(metadata, clientId, clientSecret, method(clientSecret));
  configuration.timeout = patienceSeconds;
  if (isPlain) allowInsecureRequests(configuration);
  return configuration;
}

/** Tells a provider that rejects from a provider that does not answer. */
function kindOf(error: unknown): OidcError['kind'] {
  if (error instanceof AuthorizationResponseError) return 'refused';
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return /^OAUTH_(?:RESPONSE_BODY_ERROR|INVALID_RESPONSE|JWT_|.*CLAIM)/.test(code) ? 'refused' : 'away';
}

const textOf = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);

export function createOidc(options: OidcOptions): Oidc {
  const { redirectUri, log } = options;
  let known: Promise<Configuration> | null = null;
  const configuration = (): Promise<Configuration> => {
    known ??= configure(options).catch((error: unknown) => {
      known = null;
      throw error;
    });
    return known;
  };
  const asking = async <T>(ask: (configuration: Configuration) => Promise<T>): Promise<T> => {
    try {
      return await ask(await configuration());
    } catch (error) {
      const kind = kindOf(error);
      log.warn(
        { err: error },
        `an OpenID Connect sign-in failed (${kindTexts[kind]}); check the provider in HEADGATE_OIDC_ISSUER`,
      );
      throw new OidcError(kind, error);
    }
  };
  return {
    attempt: () =>
      asking(async (provider) => {
        const secrets = { state: randomState(), nonce: randomNonce(), verifier: randomPKCECodeVerifier() };
        const url = buildAuthorizationUrl(provider, {
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
      asking(async (provider) => {
        const tokens = await authorizationCodeGrant(provider, new URL(query, redirectUri), {
          pkceCodeVerifier: verifier,
          expectedState: state,
          expectedNonce: nonce,
          idTokenExpected: true,
        });
        const claims = tokens.claims();
        if (claims === undefined) throw new Error('the provider sent no ID token');
        const isTold = typeof claims['email'] === 'string';
        const said = isTold ? claims : await fetchUserInfo(provider, tokens.access_token, claims.sub);
        return {
          issuer: claims.iss,
          subject: claims.sub,
          email: textOf(said['email']),
          isEmailVerified: said['email_verified'] === true,
          name: textOf(said['name']) ?? textOf(claims['name']),
        };
      }),
  };
}
