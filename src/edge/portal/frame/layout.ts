import type { Action } from '#core/accounts/accounts.ts';
import type { HttpContext } from '#edge/http/http.ts';
import { formToken, html, type Html, type MaybeHtml, type Refusal, type Visit } from '#edge/portal/ui/ui.ts';
import { assets } from './assets.ts';
import { organizationMenu } from './organization-switch.ts';
import { aboutOf, viewBanner } from './viewed-organization.ts';

type PageStatus = 200 | 400 | 402 | 403 | 404 | 405 | 409 | 413 | 422 | 429 | 500 | 502 | 503;

interface Script {
  readonly path: string;
}

export interface PageOptions {
  readonly title: string;
  /** Elements beside the title, such as a create button. */
  readonly actions?: MaybeHtml;
  readonly body: MaybeHtml;
  readonly status?: PageStatus;
  /** Address to which reloading leads, on pages that show something once. */
  readonly returnTo?: string;
  /** Script modules of `assets` for this page, in addition to the common script. */
  readonly script?: Script | readonly Script[];
}

interface Place {
  readonly path: string;
  readonly text: string;
  /**
   * The entry is hidden from visitors who may not do this action for the whole organization. Null: everybody sees it.
   */
  readonly action: Action | null;
  /** If true, visitors who may do the action only with their own data see the entry too. */
  readonly isOwnEnough?: boolean;
}

/** Heading of the places up to the next heading. */
interface Heading {
  readonly heading: string;
}

/** The pages, in the order of the menu. A heading without visible places is hidden. */
const places: readonly (Heading | Place)[] = [
  { path: '/', text: 'Overview', action: null },
  { heading: 'Inference' },
  { path: '/portal/keys', text: 'Keys', action: 'keys' },
  { path: '/portal/usage', text: 'Usage', action: 'usage.read', isOwnEnough: true },
  { path: '/portal/batches', text: 'Batches', action: 'files', isOwnEnough: true },
  { path: '/portal/wallet', text: 'Wallet', action: 'wallet.read' },
  { path: '/portal/budgets', text: 'Budgets', action: 'budgets.read', isOwnEnough: true },
  { path: '/portal/models', text: 'Models', action: null },
  { path: '/portal/playground', text: 'Playground', action: null },
  { path: '/docs', text: 'API', action: null },
  { heading: 'Infrastructure' },
  { path: '/portal/stacks', text: 'Stacks', action: 'stacks.read' },
  { path: '/portal/runs', text: 'Runs', action: 'runs.read' },
  { path: '/portal/clusters', text: 'Clusters', action: 'clusters.read' },
  { path: '/portal/costs', text: 'Costs', action: 'costs.read' },
  { heading: 'Administration' },
  { path: '/portal/projects', text: 'Projects', action: null },
  { path: '/portal/users', text: 'Users', action: null },
  { path: '/portal/invitations', text: 'Invitations', action: 'users.manage' },
  { path: '/portal/organization', text: 'Organization', action: 'organization.read' },
  { path: '/portal/webhooks', text: 'Webhooks', action: 'webhooks' },
  { path: '/portal/audit', text: 'Audit log', action: 'audit.read' },
  { heading: 'Platform' },
  { path: '/portal/engines', text: 'Engines', action: 'engines' },
  { path: '/portal/organizations', text: 'Organizations', action: 'organizations' },
];

const isWithin = (path: string, place: string): boolean =>
  place === '/' ? path === '/' : path === place || path.startsWith(`${place}/`);

interface Group {
  /** Null for the places before the first heading. */
  readonly heading: string | null;
  readonly places: readonly Place[];
}

/** Returns the places that the visitor may see, grouped by heading. */
function groupsOf({ may, mayOwn }: Pick<Visit, 'may' | 'mayOwn'>): readonly Group[] {
  const isSeen = ({ action, isOwnEnough }: Place): boolean =>
    action === null || (isOwnEnough === true ? mayOwn : may)(action);
  const groups: { heading: string | null; places: Place[] }[] = [{ heading: null, places: [] }];
  for (const one of places) {
    if ('heading' in one) groups.push({ heading: one.heading, places: [] });
    else if (isSeen(one)) groups.at(-1)?.places.push(one);
  }
  return groups.filter((group) => group.places.length > 0);
}

/** Returns the places that the visitor may see. */
export const placesOf = (visit: Pick<Visit, 'may' | 'mayOwn'>): readonly Pick<Place, 'path' | 'text'>[] =>
  groupsOf(visit).flatMap((group) => group.places);

function menu(visit: Visit): Html {
  const { path } = visit.context.req;
  const link = (place: Place): Html =>
    html`<li>
      <a href="${place.path}" ${isWithin(path, place.path) ? html`aria-current="page"` : null}>${place.text}</a>
    </li>`;
  const group = ({ heading: title, places: list }: Group): Html => {
    if (title === null)
      return html`<ul>
        ${list.map(link)}
      </ul>`;
    const id = `menu-${title.toLowerCase()}`;
    return html`<p class="menu-heading" id="${id}">${title}</p>
      <ul aria-labelledby="${id}">
        ${list.map(link)}
      </ul>`;
  };
  return html`<nav class="menu" aria-label="Pages">${groupsOf(visit).map(group)}</nav>`;
}

function account(visit: Visit): Html {
  const { member } = visit.signedIn;
  return html`<div class="account">
    <p class="account-name" title="${member.email}">${member.email}</p>
    ${organizationMenu(visit)}
    <p><a href="/portal/account">Account</a> <a href="/portal/sessions">Sessions</a></p>
    <form method="post" action="/portal/sign-out">${formToken(visit)}<button class="plain">Sign out</button></form>
  </div>`;
}

const brand = html`<a class="brand" href="/"
  ><img src="${assets.icon.path}" alt="" width="24" height="24" />Headgate</a
>`;

const searchLink = html`<p class="search-link">
  <a href="/portal/search" data-palette>Search <kbd>Ctrl K</kbd></a>
</p>`;

/** @param about the value of `aboutOf`; absent if nobody is signed in */
function documentOf({ title, returnTo, script }: Omit<PageOptions, 'body'>, body: Html, about?: string): Html {
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
        ${about === undefined ? null : html`<script src="${assets.palette.path}" defer></script>`}
        ${[script ?? []].flat().map(({ path }) => html`<script type="module" src="${path}"></script>`)}
      </head>
      <body
        ${returnTo === undefined ? null : html`data-return-to="${returnTo}"`}
        ${about === undefined ? null : html`data-about="${about}"`}
      >
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

/** Renders a page for a signed-in visitor. */
export function page(visit: Visit, options: PageOptions): Response | Promise<Response> {
  const { title, actions = null, body, status = 200 } = options;
  const content = html`<a class="skip" href="#main">Skip to content</a>
    <div class="frame">
      <header class="side">
        ${brand}
        <button type="button" class="menu-button" popovertarget="pages">Menu</button>
        <div id="pages" class="pages" popover>${searchLink}${menu(visit)}${account(visit)}</div>
      </header>
      <main id="main">${viewBanner(visit)}${heading(title, actions)}${body}</main>
    </div>`;
  return visit.context.html(documentOf(options, content, aboutOf(visit)), status);
}

/** Renders a page that needs no sign-in. */
export function openPage(context: HttpContext, options: PageOptions): Response | Promise<Response> {
  const { title, body, status = 200 } = options;
  const content = html`<main id="main" class="open">
    <p>${brand}</p>
    <h1>${title}</h1>
    ${body}
  </main>`;
  return context.html(documentOf({ title }, content), status);
}

/** Returns the status of the page for a rejection by the API. */
export function statusOf({ status }: Refusal): PageStatus {
  const known = [400, 402, 403, 404, 409, 413, 422, 429, 500, 502, 503] as const;
  return known.find((one) => one === status) ?? 400;
}
