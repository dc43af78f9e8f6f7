import { generateKeyPairSync, type KeyObject, randomUUID, sign } from 'node:crypto';
import { http, HttpResponse } from 'msw';
import { setupServer } from 'msw/node';

/** Answers of an endpoint, in place of the correct ones. */
type Answer = () => Response | Promise<Response>;

export interface SigningKey {
  readonly kid: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

/** Differences of a provider from a correct one. */
export interface Misbehavior {
  readonly discovery?: Answer;
  /** The answer of `/token`; `/moved/token` answers correctly. */
  readonly token?: Answer;
  readonly keys?: Answer;
  readonly userinfo?: Answer;
  /** Fields of the metadata; undefined leaves one out. */
  readonly metadata?: object;
  /** Fields of the token endpoint's answer; undefined leaves one out. */
  readonly tokens?: object;
  /** Claims of the ID token; undefined leaves one out. */
  readonly claims?: object;
  readonly header?: object;
  /** Signs the ID token; null leaves the signature empty. */
  readonly signingKey?: SigningKey | null;
  /** The query with which the browser returns, without its state. */
  readonly returns?: Readonly<Record<string, string>>;
}

/** An OpenID provider on the internet: requests of this process to its https address get the answers of the test. */
export interface InternetProvider {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Changes how the provider behaves from now on. */
  behave(misbehavior: Misbehavior): void;
  /**
   * Signs a person in.
   * @param url to which the gateway sent the browser
   * @returns the query with which the provider sends the browser back
   */
  authorize(url: string): string;
  /** Secrets of the current sign-in, which neither a page nor a log line may show. */
  secrets(): readonly string[];
  stop(): void;
}

export function createSigningKey(): SigningKey {
  return { kid: randomUUID(), ...generateKeyPairSync('rsa', { modulusLength: 2048 }) };
}

const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');

const firstKey = createSigningKey();

export function startInternetProvider(issuer: string): InternetProvider {
  const clientId = 'headgate';
  const clientSecret = `client-secret-${randomUUID()}`;
  let now: Misbehavior = {};
  let nonce = '';
  let secrets: string[] = [];
  const secret = (kind: string): string => {
    const made = `${kind}-${randomUUID()}`;
    secrets.push(made);
    return made;
  };

  const metadata = (): object => ({
    issuer,
    authorization_endpoint: `${issuer}/authorize`,
    token_endpoint: `${issuer}/token`,
    userinfo_endpoint: `${issuer}/userinfo`,
    jwks_uri: `${issuer}/keys`,
    response_types_supported: ['code'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
    ...now.metadata,
  });
  const idToken = (): string => {
    const { signingKey: key = firstKey } = now;
    const seconds = Math.floor(Date.now() / 1000);
    const claims = { iss: issuer, aud: clientId, sub: randomUUID(), nonce, iat: seconds, exp: seconds + 60 };
    const content = [
      encode({ alg: key === null ? 'none' : 'RS256', kid: key?.kid, ...now.header }),
      encode({ ...claims, ...now.claims }),
    ].join('.');
    const signature =
      key === null ? '' : sign('RSA-SHA256', Buffer.from(content), key.privateKey).toString('base64url');
    const made = `${content}.${signature}`;
    secrets.push(made);
    return made;
  };
  const tokens = (): object => ({
    access_token: secret('access-token'),
    token_type: 'Bearer',
    id_token: idToken(),
    ...now.tokens,
  });
  const keys = (): object => {
    const { kid, publicKey } = now.signingKey ?? firstKey;
    return { keys: [{ ...publicKey.export({ format: 'jwk' }), kid, use: 'sig', alg: 'RS256' }] };
  };

  const noteSecrets = async (request: Request): Promise<void> => {
    const form = new URLSearchParams(await request.text());
    secrets.push(form.get('code_verifier') ?? '', request.headers.get('authorization') ?? '');
  };
  const server = setupServer(
    http.get(`${issuer}/.well-known/openid-configuration`, () => now.discovery?.() ?? HttpResponse.json(metadata())),
    http.get(`${issuer}/keys`, () => now.keys?.() ?? HttpResponse.json(keys())),
    http.get(`${issuer}/userinfo`, () => now.userinfo?.() ?? HttpResponse.json({})),
    http.post(`${issuer}/token`, async ({ request }) => {
      await noteSecrets(request);
      return now.token?.() ?? HttpResponse.json(tokens());
    }),
    http.post(`${issuer}/moved/token`, () => HttpResponse.json(tokens())),
  );
  // Requests to the gateway and its engines pass.
  server.listen({ onUnhandledFrame: 'bypass' });
  return {
    issuer,
    clientId,
    clientSecret,
    behave(misbehavior) {
      now = misbehavior;
      secrets = [clientSecret];
    },
    authorize(url) {
      const asked = new URL(url).searchParams;
      nonce = asked.get('nonce') ?? '';
      secrets.push(nonce);
      const returns = now.returns ?? { code: secret('code') };
      return new URLSearchParams({ ...returns, state: asked.get('state') ?? '' }).toString();
    },
    secrets: () => secrets,
    stop: () => server.close(),
  };
}
