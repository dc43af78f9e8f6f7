import { z } from 'zod';
import { ConfigError } from '#base/config-error.ts';
import { section } from './section.ts';
import { text, urlOf } from './values.ts';

/** Variables of sign-in: links by email, and an OpenID Connect provider. */

export interface SignInConfig {
  /** `https://host[:port]` at which people reach the portal; null: unknown, and the gateway sends no links. */
  readonly publicUrl: string | null;
  /** Null: no email is sent. */
  readonly mail: MailConfig | null;
  /** Null: people sign in by password only. */
  readonly oidc: OidcConfig | null;
}

export interface MailConfig {
  /** `smtp://` or `smtps://`, with user and password if the server requires them. */
  readonly url: string;
  readonly from: string;
}

export interface OidcConfig {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Name on the sign-in button. */
  readonly name: string;
  /** Organization and role of people without an account; null: they are rejected. */
  readonly newPeople: { readonly organizationId: string; readonly role: 'admin' | 'member' } | null;
}

const isLoopback = ({ hostname }: URL): boolean => /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/.test(hostname);

/** Requires TLS or a loopback address, because the URL carries passwords and sessions. */
const safeUrl = (example: string) =>
  text.refine((value) => {
    const url = URL.parse(value);
    if (url === null || url.username !== '' || url.search !== '' || url.hash !== '') return false;
    return url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url));
  }, `must be a URL such as ${example}; http:// is allowed for this machine only`);

export const signIn = section(
  {
    HEADGATE_PUBLIC_URL: safeUrl('https://gateway.example.com')
      .refine(
        (value) => new URL(value).pathname === '/',
        'must not have a path, because the portal is served at the root',
      )
      .transform((value) => new URL(value).origin)
      .optional(),
    HEADGATE_SMTP_URL: urlOf(['smtp:', 'smtps:'], 'smtps://user:password@mail.example.com').optional(),
    HEADGATE_MAIL_FROM: z
      .string()
      .regex(/^[^\s@<>"(),:;]+@[^\s@<>"(),:;]+$/, 'must be an email address')
      .max(254)
      .optional(),
    HEADGATE_OIDC_ISSUER: safeUrl('https://login.example.com/realms/people').optional(),
    HEADGATE_OIDC_CLIENT_ID: text.max(1024).optional(),
    HEADGATE_OIDC_CLIENT_SECRET: text.max(4096).optional(),
    HEADGATE_OIDC_NAME: text.max(60).default('single sign-on'),
    HEADGATE_OIDC_ORGANIZATION: z
      .string()
      .regex(/^org_[0-9a-f]{32}$/, 'must be the id of an organization, such as org_019ab1c2d3e47f008a1b2c3d4e5f6071')
      .optional(),
    HEADGATE_OIDC_ROLE: z.enum(['admin', 'member']).default('member'),
  },
  (read): SignInConfig => {
    const publicUrl = read.HEADGATE_PUBLIC_URL ?? null;
    return { publicUrl, mail: mailOf(read, publicUrl), oidc: oidcOf(read, publicUrl) };
  },
);

interface Given {
  readonly HEADGATE_SMTP_URL?: string | undefined;
  readonly HEADGATE_MAIL_FROM?: string | undefined;
  readonly HEADGATE_OIDC_ISSUER?: string | undefined;
  readonly HEADGATE_OIDC_CLIENT_ID?: string | undefined;
  readonly HEADGATE_OIDC_CLIENT_SECRET?: string | undefined;
  readonly HEADGATE_OIDC_NAME: string;
  readonly HEADGATE_OIDC_ORGANIZATION?: string | undefined;
  readonly HEADGATE_OIDC_ROLE: 'admin' | 'member';
}

/** Requires the public URL: a link built from a request's Host header would lead wherever the sender wants. */
function requirePublicUrl(variable: string, publicUrl: string | null): URL {
  if (publicUrl !== null) return new URL(publicUrl);
  throw new ConfigError(
    `HEADGATE_PUBLIC_URL: is missing; set it to the address of the portal, which ${variable} requires.`,
  );
}

function mailOf(read: Given, publicUrl: string | null): MailConfig | null {
  const { HEADGATE_SMTP_URL: url, HEADGATE_MAIL_FROM: from } = read;
  if (url === undefined) return null;
  const { hostname } = requirePublicUrl('HEADGATE_SMTP_URL', publicUrl);
  return { url, from: from ?? `headgate@${hostname}` };
}

function oidcOf(read: Given, publicUrl: string | null): OidcConfig | null {
  const { HEADGATE_OIDC_ISSUER: issuer, HEADGATE_OIDC_CLIENT_ID: clientId } = read;
  const { HEADGATE_OIDC_CLIENT_SECRET: clientSecret, HEADGATE_OIDC_ORGANIZATION: organizationId } = read;
  const all = {
    HEADGATE_OIDC_ISSUER: issuer,
    HEADGATE_OIDC_CLIENT_ID: clientId,
    HEADGATE_OIDC_CLIENT_SECRET: clientSecret,
  };
  if (Object.values(all).every((value) => value === undefined)) return null;
  if (issuer === undefined || clientId === undefined || clientSecret === undefined) {
    const missing = Object.entries(all).find(([, value]) => value === undefined)?.[0] ?? '';
    throw new ConfigError(`${missing}: is missing; a provider requires ${Object.keys(all).join(', ')}.`);
  }
  requirePublicUrl('HEADGATE_OIDC_ISSUER', publicUrl);
  const newPeople = organizationId === undefined ? null : { organizationId, role: read.HEADGATE_OIDC_ROLE };
  return { issuer, clientId, clientSecret, name: read.HEADGATE_OIDC_NAME, newPeople };
}
