import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { systemClock } from '#base/clock.ts';
import { createAudit } from '#core/audit/audit.ts';
import { makeSignInLink } from '#core/sessions/sessions.ts';
import type { TestGateway } from '#test/gateway.ts';

/** An answer to a browser: what it shows, and what it keeps. */
export interface Shown {
  readonly status: number;
  readonly text: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

export interface SentOptions {
  readonly method?: string;
  /** Null leaves one out that is sent otherwise. */
  readonly headers?: Readonly<Record<string, string | null>>;
  readonly body?: string | Uint8Array;
}

/** Sends exactly these headers: fetch would not let a test say where a request comes from. */
export function send(url: string, { method = 'GET', headers = {}, body }: SentOptions = {}): Promise<Shown> {
  return new Promise((resolve, reject) => {
    const said = Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== null));
    const sent = request(url, { method, headers: said as Record<string, string> }, (answer) => {
      const parts: Buffer[] = [];
      answer.on('data', (part: Buffer) => parts.push(part));
      answer.on('end', () => {
        const text = Buffer.concat(parts).toString('utf8');
        resolve({ status: answer.statusCode ?? 0, text, headers: answer.headers });
      });
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

/**
 * A browser that follows where it is sent.
 * @param jar the cookies of each host and port
 */
export async function browse(start: string, jar = new Map<string, string>()): Promise<Shown> {
  let url = start;
  for (let hops = 0; hops < 12; hops += 1) {
    const { origin } = new URL(url);
    const cookie = [...jar].flatMap(([name, value]) =>
      name.startsWith(`${origin} `) ? [`${name.split(' ')[1]}=${value}`] : [],
    );
    const shown = await send(url, { headers: { accept: 'text/html', cookie: cookie.join('; ') } });
    for (const set of [shown.headers['set-cookie'] ?? []].flat()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(set) ?? [];
      if (value === '' || /max-age=0/i.test(set)) jar.delete(`${origin} ${name}`);
      else jar.set(`${origin} ${name}`, value);
    }
    const to = shown.headers.location;
    if (shown.status < 300 || shown.status >= 400 || typeof to !== 'string') return shown;
    url = new URL(to, url).href;
  }
  throw new Error(`${start} sends browsers around in circles`);
}

/** Somebody at a browser, as far as HTTP goes: a cookie, and forms that come from its own pages. */
export interface Visitor {
  readonly cookie: string;
  readonly formToken: string;
  get(path: string, headers?: SentOptions['headers']): Promise<Shown>;
  /** A form of this session, unless fields or headers say otherwise. */
  post(path: string, fields?: Readonly<Record<string, string>>, headers?: SentOptions['headers']): Promise<Shown>;
}

const page = { accept: 'text/html' };
const form = { ...page, 'content-type': 'application/x-www-form-urlencoded' };

export async function makeLink({ db }: Pick<TestGateway, 'db'>): Promise<string> {
  const link = await makeSignInLink({ db, clock: systemClock, audit: createAudit({ clock: systemClock }) });
  if (link === null) throw new Error('there is no platform admin');
  return link.token;
}

export function useLink(url: string, token: string, headers: SentOptions['headers'] = {}): Promise<Shown> {
  const body = new URLSearchParams({ token }).toString();
  return send(`${url}/welcome`, { method: 'POST', headers: { ...form, origin: url, ...headers }, body });
}

/** The `name=value` that an answer has its browser keep; empty where there is none. */
export function cookieOf({ headers }: Shown): string {
  const [set = ''] = headers['set-cookie'] ?? [];
  return set.split(';')[0] ?? '';
}

export async function signInVisitor(gateway: TestGateway): Promise<Visitor> {
  return visitorWith(gateway, cookieOf(await useLink(gateway.url, await makeLink(gateway))));
}

/** A form that nobody's session is behind. */
export function sendForm(
  url: string,
  path: string,
  fields: Readonly<Record<string, string>>,
  headers: SentOptions['headers'] = {},
): Promise<Shown> {
  const body = new URLSearchParams(fields).toString();
  return send(`${url}${path}`, { method: 'POST', headers: { ...form, origin: url, ...headers }, body });
}

export const passwordOf = 'correct horse battery';

/** Somebody with an account and a password. */
export interface Person {
  readonly id: string;
  readonly email: string;
}

/** Makes a user as an administrator does. */
export async function makePerson(
  gateway: Pick<TestGateway, 'request'>,
  fields: { readonly role?: string } = {},
  key?: string,
): Promise<Person> {
  const email = `${randomUUID()}@example.com`;
  const body = { name: 'Ada', email, password: passwordOf, ...fields };
  const made = await gateway.request('/v1/users', { body, ...(key !== undefined && { key }) });
  if (made.status !== 201) throw new Error(await made.text());
  return { id: ((await made.json()) as { id: string }).id, email };
}

export async function signInPerson(gateway: Pick<TestGateway, 'url'>, email: string): Promise<Visitor> {
  const shown = await sendForm(gateway.url, '/sign-in', { email, password: passwordOf });
  if (shown.status !== 303) throw new Error(`${shown.status}: ${shown.text}`);
  return visitorWith(gateway, cookieOf(shown));
}

export async function visitorWith({ url }: Pick<TestGateway, 'url'>, cookie: string): Promise<Visitor> {
  // The notice that the last form leaves for the page that it leads to.
  let notice = '';
  const keepNotice = (shown: Shown): Shown => {
    const set = [shown.headers['set-cookie'] ?? []].flat().find((one) => /^[^=]*-notice=/.test(one));
    if (set !== undefined) notice = set.includes('Max-Age=0') ? '' : `; ${set.split(';')[0] ?? ''}`;
    return shown;
  };
  const get: Visitor['get'] = async (path, headers = {}) =>
    keepNotice(await send(`${url}${path}`, { headers: { ...page, cookie: `${cookie}${notice}`, ...headers } }));
  const overview = await get('/');
  const formToken = /name="form_token" value="([^"]+)"/.exec(overview.text)?.[1] ?? '';
  return {
    cookie,
    formToken,
    get,
    async post(path, fields = {}, headers = {}) {
      const body = new URLSearchParams({ form_token: formToken, ...fields }).toString();
      const sent = { ...form, cookie, origin: url, ...headers };
      return keepNotice(await send(`${url}${path}`, { method: 'POST', headers: sent, body }));
    },
  };
}
