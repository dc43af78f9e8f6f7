import type { Action } from '#core/accounts/accounts.ts';
import type { HttpContext } from '#edge/http/http.ts';
import { assets } from './assets.ts';
import { html, type Html, type MaybeHtml } from './html.ts';
import { formToken } from './ui.ts';
import type { Visit } from './visit.ts';

export interface PageOptions {
  readonly title: string;
  /** What stands beside the title, such as the button that makes another one. */
  readonly actions?: MaybeHtml;
  readonly body: MaybeHtml;
  readonly status?: 200 | 400 | 402 | 403 | 404 | 405 | 409 | 413 | 422 | 429 | 500 | 502 | 503;
  /** Where loading the page again leads, for what is shown once. */
  readonly returnTo?: string;
}

interface Place {
  readonly path: string;
  readonly text: string;
  /** Who may not do this with the organization does not see it. */
  readonly action: Action | null;
}

/** The pages, in the order of the menu. */
const places: readonly Place[] = [
  { path: '/', text: 'Overview', action: null },
  { path: '/portal/keys', text: 'Keys', action: 'keys' },
  { path: '/portal/usage', text: 'Usage', action: 'usage.read' },
  { path: '/portal/wallet', text: 'Wallet', action: 'wallet.read' },
  { path: '/portal/models', text: 'Models', action: null },
];

const isWithin = (path: string, place: string): boolean =>
  place === '/' ? path === '/' : path === place || path.startsWith(`${place}/`);

function menu({ context, may }: Visit): Html {
  const { path } = context.req;
  const seen = places.filter(({ action }) => action === null || may(action));
  return html`<nav class="menu" aria-label="Pages">
    ${seen.map((place) => html`<a href="${place.path}" ${isWithin(path, place.path) ? html`aria-current="page"` : null}>${place.text}</a>`)}
    <a href="/docs">API</a>
  </nav>`;
}

function account(visit: Visit): Html {
  const { member } = visit.signedIn;
  return html`<div class="account">
    <p class="account-name" title="${member.email}">${member.email}</p>
    <p class="quiet">${member.organization.name}</p>
    <p><a href="/portal/sessions">Sessions</a></p>
    <form method="post" action="/portal/sign-out">${formToken(visit)}<button class="plain">Sign out</button></form>
  </div>`;
}

const brand = html`<a class="brand" href="/"
  ><img src="${assets.icon.path}" alt="" width="24" height="24" />Headgate</a
>`;

function documentOf(title: string, returnTo: string | undefined, body: Html): Html {
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <meta name="htmx-config" content='{"includeIndicatorCSS":false}' />
        <title>${title} · Headgate</title>
        <link rel="icon" href="${assets.icon.path}" />
        <link rel="stylesheet" href="${assets.style.path}" />
        <script src="${assets.script.path}" defer></script>
        <script src="${assets.htmx.path}" defer></script>
      </head>
      <body ${returnTo === undefined ? null : html`data-return-to="${returnTo}"`}>
        ${body}
      </body>
    </html>`;
}

function heading(title: string, actions: MaybeHtml): Html {
  return html`<div class="heading">
    <h1>${title}</h1>
    <div class="actions">${actions}</div>
  </div>`;
}

/** A page of somebody who is signed in. */
export function page(visit: Visit, options: PageOptions): Response | Promise<Response> {
  const { title, actions = null, body, status = 200, returnTo } = options;
  const content = html`<a class="skip" href="#main">Skip to the page</a>
    <div class="frame">
      <header class="side">${brand}${menu(visit)}${account(visit)}</header>
      <main id="main">${heading(title, actions)}${body}</main>
    </div>`;
  return visit.context.html(documentOf(title, returnTo, content), status);
}

/** A page for anybody. */
export function openPage(
  context: HttpContext,
  { title, body, status = 200 }: PageOptions,
): Response | Promise<Response> {
  const content = html`<main id="main" class="open">
    <p>${brand}</p>
    <h1>${title}</h1>
    ${body}
  </main>`;
  return context.html(documentOf(title, undefined, content), status);
}
