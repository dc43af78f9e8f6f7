import { parseId } from '#base/id.ts';
import type { ListAnswer, PageAnswer } from '#edge/contract/lists.ts';
import type { OrganizationAnswer } from '#edge/contract/organizations.ts';
import type { UsageRequestAnswer } from '#edge/contract/requests.ts';
import type { StackAnswer } from '#edge/contract/stacks.ts';
import { page, placesOf, readKeys } from '#edge/portal/frame/frame.ts';
import {
  empty,
  html,
  type Html,
  type MaybeHtml,
  pathWith,
  type PortalParts,
  queryOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** Finds pages, models, keys, stacks, organizations and requests by name or id: only what the visitor may see. */

interface Found {
  readonly kind: string;
  readonly name: string;
  readonly href: string;
}

const foundMax = 20;
const requestId = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

const listOf = async <T>(list: Promise<{ readonly data: readonly T[] }> | null): Promise<readonly T[]> =>
  list === null ? [] : (await list).data;

/** Returns everything that has a name. Names are matched here, because the lists of the API are not searched. */
async function namedThings(visit: Visit, { models }: PortalParts): Promise<readonly Found[]> {
  const { get, may } = visit;
  const [list, keys, stacks, organizations] = await Promise.all([
    models(parseId('org', visit.organizationId) ?? ''),
    may('keys') ? readKeys(visit) : [],
    listOf(may('stacks.read') ? get<PageAnswer<StackAnswer>>('/v1/stacks?limit=100') : null),
    listOf(may('organizations') ? get<ListAnswer<OrganizationAnswer>>('/v1/organizations?limit=500') : null),
  ]);
  return [
    ...list.map(({ id }) => ({ kind: 'Model', name: id, href: `/portal/models/${encodeURIComponent(id)}` })),
    ...keys.map(({ id, name }) => ({ kind: 'Key', name, href: `/portal/keys/${id}` })),
    ...stacks.map(({ name }) => ({ kind: 'Stack', name, href: `/portal/stacks/${encodeURIComponent(name)}` })),
    ...organizations.map(({ id, name }) => ({ kind: 'Organization', name, href: `/portal/organizations/${id}` })),
  ];
}

async function find(visit: Visit, parts: PortalParts, asked: string): Promise<readonly Found[]> {
  const pages = placesOf(visit).map(({ path, text }) => ({ kind: 'Page', name: text, href: path }));
  if (asked === '') return pages;
  if (requestId.test(asked) && visit.mayOwn('usage.read')) {
    const path = `/portal/usage/${asked.toLowerCase()}`;
    const request = await visit.find<UsageRequestAnswer>(`/v1/usage/requests/${asked}`);
    return [{ kind: 'Request', name: request === null ? asked : `${asked} (${request.model})`, href: path }];
  }
  const words = asked.toLowerCase();
  const matching = [...pages, ...(await namedThings(visit, parts))].filter(
    ({ name, href }) => name.toLowerCase().includes(words) || href.toLowerCase().endsWith(`/${words}`),
  );
  const isFirst = ({ name }: Found): boolean => name.toLowerCase().startsWith(words);
  return [...matching.filter(isFirst), ...matching.filter((one) => !isFirst(one))].slice(0, foundMax);
}

const results = (found: readonly Found[]): MaybeHtml =>
  found.length === 0
    ? empty('Nothing found', 'Search by a part of a name, or by the id of a request.')
    : html`<ul class="found">
        ${found.map(
          ({ kind, name, href }) =>
            html`<li>
              <a href="${href}">${name} <span class="quiet">${kind}</span></a>
            </li>`,
        )}
      </ul>`;

/** The page of the search, whose parts the palette shows in a dialog. */
export async function searchPage(visit: Visit, parts: PortalParts): Promise<Response> {
  const asked = queryOf(visit.context, 'q').trim().slice(0, 200);
  const form: Html = html`<form class="find" method="get" action="${pathWith('/portal/search', {})}" role="search">
    <input
      type="search"
      name="q"
      value="${asked}"
      aria-label="Search pages, models, keys, stacks and requests"
      placeholder="Name, or id of a request"
      maxlength="200"
      autocomplete="off"
    />
    <button>Search</button>
  </form>`;
  const body = html`${form}
    <div id="found">${results(await find(visit, parts, asked))}</div>`;
  return page(visit, { title: 'Search', body });
}
