import { randomBytes } from 'node:crypto';
import { delay, HttpResponse } from 'msw';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '#test/free-port.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import {
  createSigningKey,
  type InternetProvider,
  type Misbehavior,
  startInternetProvider,
} from '#test/portal/internet-provider.ts';
import { cookieOf, makePerson, type Person, send, type Shown } from '#test/portal/visitor.ts';

const issuer = 'https://login.example.com';
const html = () => HttpResponse.html('<!doctype html><title>Maintenance</title>');
const status = (code: number) => () => new HttpResponse(null, { status: code });
/** An error of OAuth 2.0, as a provider words it. */
const oauthError = (code: number, error: string, headers?: Record<string, string>) => () =>
  HttpResponse.json(
    { error, error_description: 'Described by the provider' },
    { status: code, ...(headers && { headers }) },
  );

/** A token in a response that is no JSON: the parser's error quotes it. */
const unquotedToken = 'x5ecr3t';
/** Longer than an index row of PostgreSQL, even compressed. */
const longSubject = (): string => randomBytes(3000).toString('base64url');

let provider: InternetProvider;
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  provider = startInternetProvider(issuer);
  const port = await freePort();
  gateway = await startGateway({
    env: {
      PORT: String(port),
      HEADGATE_PUBLIC_URL: `http://127.0.0.1:${port}`,
      HEADGATE_OIDC_ISSUER: issuer,
      HEADGATE_OIDC_CLIENT_ID: provider.clientId,
      HEADGATE_OIDC_CLIENT_SECRET: provider.clientSecret,
      HEADGATE_OIDC_NAME: 'Water & Co',
    },
  });
  person = await makePerson(gateway);
});

afterAll(async () => {
  await gateway?.stop();
  provider.stop();
});

interface SignedIn {
  readonly shown: Shown;
  /** `providerError` of the log lines. */
  readonly providerErrors: readonly string[];
}

/** Signs in as the person, and expects no secret of the sign-in on the page or in the log. */
async function signIn(misbehavior: Misbehavior): Promise<SignedIn> {
  const { claims } = misbehavior;
  provider.behave({ ...misbehavior, claims: { email: person.email, email_verified: true, ...claims } });
  const from = gateway.logLines.length;
  const headers = { accept: 'text/html' };
  const begun = await send(`${gateway.url}/sign-in/oidc`, { headers });
  const to = String(begun.headers.location);
  const back = begun.status === 303 ? `${gateway.url}/sign-in/oidc/callback?${provider.authorize(to)}` : null;
  const shown = back === null ? begun : await send(back, { headers: { ...headers, cookie: cookieOf(begun) } });
  const lines = gateway.logLines.slice(from);
  for (const secret of [unquotedToken, ...provider.secrets()].filter((one) => one !== '')) {
    expect(lines.join('')).not.toContain(secret);
    expect(shown.text).not.toContain(secret);
  }
  const parsed = lines.map((line) => JSON.parse(line) as { readonly providerError?: string });
  return { shown, providerErrors: parsed.flatMap(({ providerError }) => providerError ?? []) };
}

const leadOf = ({ text }: Shown): string => /<p class="lead">([^<]*)/.exec(text)?.[1] ?? '';
const unavailable = 'Water &amp; Co is unavailable. Try again later, or ask the administrator of this gateway.';
const rejected = 'Water &amp; Co did not sign you in, or the attempt did not start in this browser. Try again.';

interface Row extends Misbehavior {
  readonly when: string;
  readonly error: string;
}

const notConform = 'unexpected HTTP response status code';
const notJson = 'unexpected response content-type';

describe('a sign-in with a provider whose discovery fails', () => {
  const rows: readonly Row[] = [
    { when: 'discovery answers 500', discovery: status(500), error: `HTTP 500: ${notConform}` },
    { when: 'discovery answers 404', discovery: status(404), error: `HTTP 404: ${notConform}` },
    {
      when: 'discovery answers a redirect',
      discovery: () => HttpResponse.redirect(`${issuer}/login`, 302),
      error: `HTTP 302: ${notConform}`,
    },
    {
      when: 'discovery answers 429',
      discovery: oauthError(429, 'slow_down', { 'retry-after': '60' }),
      error: `HTTP 429: ${notConform}`,
    },
    { when: 'discovery answers HTML with 200', discovery: html, error: `HTTP 200: ${notJson}` },
    {
      when: 'discovery answers a JSON list',
      discovery: () => HttpResponse.json([{ issuer }]),
      error: '"response" body must be a top level object',
    },
    {
      when: 'discovery names no issuer',
      metadata: { issuer: undefined },
      error: '"response" body "issuer" property must be a string',
    },
    {
      when: 'discovery names another issuer',
      metadata: { issuer: 'https://login.example.net' },
      error: 'discovered metadata issuer does not match the expected issuer',
    },
    {
      when: 'discovery names no authorization endpoint',
      metadata: { authorization_endpoint: undefined },
      error: 'authorization server metadata does not contain a valid "as.authorization_endpoint"',
    },
    {
      when: 'discovery is silent for ten seconds',
      async discovery() {
        await delay('infinite');
        return html();
      },
      error: 'The operation was aborted due to timeout',
    },
  ];

  it.each(rows)('returns 503 when $when', async ({ error, ...misbehavior }) => {
    const { shown, providerErrors } = await signIn(misbehavior);
    expect([shown.status, leadOf(shown), providerErrors]).toEqual([503, unavailable, [error]]);
  });

  it('succeeds once the provider works again', async () => {
    const { shown, providerErrors } = await signIn({});
    expect([shown.status, shown.headers.location, providerErrors]).toEqual([303, '/', []]);
  });
});

describe('a sign-in whose provider fails after the person signed in there', () => {
  const rows: readonly Row[] = [
    { when: 'the client secret has expired', token: oauthError(401, 'invalid_client'), error: 'invalid_client' },
    {
      when: 'the client secret has expired, reported with a challenge',
      token: oauthError(401, 'invalid_client', { 'www-authenticate': 'Basic realm="x", error="invalid_client"' }),
      error: 'invalid_client',
    },
    {
      when: 'the token endpoint answers 401 with a challenge only',
      token: oauthError(401, 'invalid_client', { 'www-authenticate': 'Basic realm="x"' }),
      error: 'HTTP 401',
    },
    {
      when: 'the client may not use authorization codes',
      token: oauthError(400, 'unauthorized_client'),
      error: 'unauthorized_client',
    },
    { when: 'the token endpoint answers 500', token: status(500), error: `HTTP 500: ${notConform}` },
    { when: 'the token endpoint answers HTML with 200', token: html, error: `HTTP 200: ${notJson}` },
    {
      when: 'the token endpoint answers broken JSON',
      token: () =>
        HttpResponse.text(`{"access_token": ${unquotedToken}}`, { headers: { 'content-type': 'application/json' } }),
      error: 'failed to parse "response" body as JSON',
    },
    {
      when: 'the token endpoint limits the rate in JSON',
      token: oauthError(429, 'slow_down', { 'retry-after': '60' }),
      error: 'slow_down',
    },
    {
      when: 'the token endpoint limits the rate in HTML',
      token: () => HttpResponse.html('<p>Too many requests', { status: 429 }),
      error: `HTTP 429: ${notJson}`,
    },
    {
      when: 'the token endpoint sends no ID token',
      tokens: { id_token: undefined },
      error: '"response" body "id_token" property must be a string',
    },
    { when: 'the keys answer 500', keys: status(500), error: `HTTP 500: ${notConform}` },
    { when: 'the keys are HTML', keys: html, error: `HTTP 200: ${notJson}` },
    {
      when: 'the keys are not a key set',
      keys: () => HttpResponse.json({}),
      error: '"response" body "keys" property must be an array',
    },
    {
      when: 'user information answers 500',
      claims: { email: undefined },
      userinfo: status(500),
      error: `HTTP 500: ${notConform}`,
    },
    {
      when: 'user information is about another subject',
      claims: { email: undefined },
      userinfo: () => HttpResponse.json({ sub: 'another', email: 'ada@example.com', email_verified: true }),
      error: 'unexpected "response" body "sub" property value',
    },
    {
      when: 'the browser returns with a server error',
      returns: { error: 'temporarily_unavailable' },
      error: 'temporarily_unavailable',
    },
    {
      when: 'the browser returns with an error of the client',
      returns: { error: 'unauthorized_client' },
      error: 'unauthorized_client',
    },
  ];

  it.each(rows)('returns 503 when $when', async ({ error, ...misbehavior }) => {
    const { shown, providerErrors } = await signIn(misbehavior);
    expect([shown.status, leadOf(shown), providerErrors]).toEqual([503, unavailable, [error]]);
  });
});

describe('a sign-in that the provider or its ID token denies', () => {
  const seconds = Math.floor(Date.now() / 1000);
  const published = createSigningKey();
  const noKey = 'error when selecting a JWT verification key, no applicable keys found';
  const rows: readonly Row[] = [
    { when: 'the code is invalid', token: oauthError(400, 'invalid_grant'), error: 'invalid_grant' },
    { when: 'the person denies it', returns: { error: 'access_denied' }, error: 'access_denied' },
    { when: 'the person must confirm more', returns: { error: 'interaction_required' }, error: 'interaction_required' },
    {
      when: 'the browser returns from another issuer',
      returns: { code: 'x', iss: 'https://login.example.net' },
      error: 'unexpected "iss" (issuer) response parameter value',
    },
    {
      when: 'the ID token has expired',
      claims: { exp: seconds - 3600 },
      error: 'unexpected JWT "exp" (expiration time) claim value, expiration is past current timestamp',
    },
    {
      when: 'the ID token is from another issuer',
      claims: { iss: 'https://login.example.net' },
      error: 'unexpected JWT "iss" (issuer) claim value',
    },
    {
      when: 'the ID token is for another client',
      claims: { aud: 'another' },
      error: 'unexpected JWT "aud" (audience) claim value',
    },
    {
      when: 'the ID token is of another attempt',
      claims: { nonce: 'n'.repeat(43) },
      error: 'unexpected ID Token "nonce" claim value',
    },
    { when: 'the ID token is unsigned', signingKey: null, error: 'unexpected JWT "alg" header parameter' },
    {
      when: 'the ID token is signed by an unknown key',
      signingKey: createSigningKey(),
      keys: () => HttpResponse.json({ keys: [published.publicKey.export({ format: 'jwk' })] }),
      header: { kid: undefined },
      error: 'JWT signature verification failed',
    },
    {
      when: 'the ID token names an unknown key',
      header: { kid: 'unknown' },
      error: noKey,
    },
    { when: 'the provider has no keys', keys: () => HttpResponse.json({ keys: [] }), error: noKey },
    { when: 'the ID token has no subject', claims: { sub: undefined }, error: 'JWT "sub" (subject) claim missing' },
    {
      when: 'the subject is a number',
      claims: { sub: 42 },
      error: 'unexpected JWT "sub" (subject) claim type',
    },
    ...[
      { when: 'the subject is empty', sub: '' },
      { when: 'the subject has 256 characters', sub: 's'.repeat(256) },
      { when: 'the subject has 4,000 random characters', sub: longSubject() },
      { when: 'the subject contains NUL', sub: 'ada\0' },
      { when: 'the subject contains half a surrogate pair', sub: 'ada\ud83d' },
    ].map(({ when, sub }) => ({ when, claims: { sub }, error: 'unexpected JWT "sub" (subject) claim value' })),
  ];

  it.each(rows)('returns 403 when $when', async ({ error, ...misbehavior }) => {
    const { shown, providerErrors } = await signIn(misbehavior);
    expect([shown.status, leadOf(shown), providerErrors]).toEqual([403, rejected, [error]]);
  });

  it.each([
    { when: 'the provider allows unsigned ID tokens', alg: 'none', signed: { signingKey: null } },
    { when: 'the provider signs ID tokens with the client secret', alg: 'HS256', signed: { header: { alg: 'HS256' } } },
  ])('returns 503 when $when', async ({ alg, signed }) => {
    const metadata = { id_token_signing_alg_values_supported: ['RS256', alg] };
    // The gateway reads the metadata again after a failure of the provider.
    await signIn({ token: status(500) });
    const { shown, providerErrors } = await signIn({ metadata, ...signed });
    expect([shown.status, leadOf(shown)]).toEqual([503, unavailable]);
    expect(providerErrors).toEqual([expect.stringMatching(/^unsupported JWS /)]);
  });

  it('returns 403 when the address is unverified', async () => {
    for (const email_verified of [false, 'true', undefined]) {
      const { shown } = await signIn({ claims: { email_verified } });
      expect([shown.status, leadOf(shown)]).toEqual([403, expect.stringContaining('You have no account here')]);
    }
  });
});

describe('a sign-in with a provider that changes', () => {
  it('succeeds with a key that was added after the last sign-in', async () => {
    for (const signingKey of [createSigningKey(), createSigningKey()]) {
      expect((await signIn({ signingKey })).shown.status).toBe(303);
    }
  });

  it('returns 403 when the ID token is signed by a removed key', async () => {
    const [removed, current] = [createSigningKey(), createSigningKey()];
    expect((await signIn({ signingKey: removed })).shown.status).toBe(303);
    const key = { ...current.publicKey.export({ format: 'jwk' }), kid: current.kid };
    const { shown } = await signIn({ signingKey: removed, keys: () => HttpResponse.json({ keys: [key] }) });
    expect(shown.status).toBe(403);
  });

  it('succeeds after the provider moved its token endpoint', async () => {
    expect((await signIn({})).shown.status).toBe(303);
    const moved: Misbehavior = { metadata: { token_endpoint: `${issuer}/moved/token` }, token: status(404) };
    expect((await signIn(moved)).shown.status).toBe(503);
    expect((await signIn(moved)).shown.status).toBe(303);
  });
});
