import { once } from 'node:events';
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';
import { freePort } from './free-port.ts';

/** A provider of OpenID Connect that signs in whoever the test says, without asking. */
export interface OidcServer {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** The person that the next attempt signs in; null says no. */
  person: OidcClaims | null;
  stop(): Promise<void>;
}

export interface OidcClaims {
  readonly sub: string;
  readonly email?: string;
  readonly email_verified?: boolean;
  readonly name?: string;
}

interface OidcOptions {
  readonly clientSecret?: string;
  /** A free one where absent. */
  readonly port?: number;
}

/** @param redirectUri where its one client has browsers sent back to */
export async function startOidcServer(redirectUri: string, options: OidcOptions = {}): Promise<OidcServer> {
  const { clientSecret = 'a secret of the client', port = await freePort() } = options;
  const issuer = `http://127.0.0.1:${port}`;
  const client = { clientId: 'headgate', clientSecret };
  const people = new Map<string, OidcClaims>();
  const server: { person: OidcClaims | null } = { person: null };
  const provider = new Provider(issuer, {
    clients: [{ client_id: client.clientId, client_secret: client.clientSecret, redirect_uris: [redirectUri] }],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_, accountId) => ({ accountId, claims: () => ({ ...people.get(accountId), sub: accountId }) }),
    async loadExistingGrant(context) {
      const { session, client: asking } = context.oidc;
      const grant = new provider.Grant({ accountId: session?.accountId ?? '', clientId: asking?.clientId ?? '' });
      grant.addOIDCScope('openid email profile');
      await grant.save();
      return grant;
    },
    ttl: { Session: 1 },
    cookies: { keys: ['of a test'] },
  });
  const handle = provider.callback();
  const listener = createServer((request, response) => {
    if (request.url?.startsWith('/interaction/') !== true) return void handle(request, response);
    const { person } = server;
    if (person !== null) people.set(person.sub, person);
    const result = person === null ? { error: 'access_denied' } : { login: { accountId: person.sub, remember: false } };
    void provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
  });
  listener.listen(port, '127.0.0.1');
  await once(listener, 'listening');
  return Object.assign(server, client, {
    issuer,
    async stop() {
      listener.closeAllConnections();
      await new Promise((resolve) => void listener.close(resolve));
    },
  });
}
