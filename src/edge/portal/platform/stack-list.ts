import type { PageAnswer } from '#edge/contract/lists.ts';
import type { StackAnswer } from '#edge/contract/stacks.ts';
import { page } from '#edge/portal/frame/frame.ts';
import {
  badge,
  empty,
  field,
  filterForm,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  pathWith,
  queryOf,
  select,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { pageNumber, pager, readRunnerProblem } from './widgets.ts';

/** The catalog of stacks. */

const path = '/portal/stacks';
const pageSize = 24;
/** Number of stacks whose categories become filter choices. */
const categoriesFrom = 100;
const usualCategories = ['Scheduler', 'Orchestration', 'ML Framework', 'Monitoring'] as const;

const notices: Readonly<Record<string, string>> = {
  deleted: 'Stack deleted. Resources that it created on clusters still exist; destroy them from its runs.',
};

export const stackPath = ({ id }: Pick<StackAnswer, 'id'>): string => `${path}/${id}`;

/** Shows the icon: an emoji, or an image that this server passes on, in a square. */
export function stackIcon(stack: Pick<StackAnswer, 'id' | 'icon' | 'version'>): Html {
  const { icon } = stack;
  if (icon !== null && /^(?:https|data):/i.test(icon)) {
    const version = encodeURIComponent(`${icon.length}-${stack.version.number}`);
    return html`<span class="icon"
      ><img src="${stackPath(stack)}/icon?v=${version}" alt="" width="40" height="40" loading="lazy"
    /></span>`;
  }
  return html`<span class="icon" aria-hidden="true">${icon ?? '📦'}</span>`;
}

export function visibilityBadge({ visibility, builtin }: StackAnswer): Html {
  if (builtin) return badge('plain', 'built-in');
  return visibility === 'private' ? badge('busy', 'private') : badge('plain', 'all organizations');
}

export async function stacksPage(visit: Visit): Promise<Response> {
  const { context, get, mayOwn } = visit;
  const [search, category] = [queryOf(context, 'search').trim(), queryOf(context, 'category')];
  const chosen = { search, category };
  const asked = { ...chosen, page: pageNumber(queryOf(context, 'page')), limit: pageSize };
  const [list, all, problem] = await Promise.all([
    get<PageAnswer<StackAnswer>>(pathWith('/v1/stacks', asked)),
    get<PageAnswer<StackAnswer>>(`/v1/stacks?limit=${categoriesFrom}`),
    readRunnerProblem(visit),
  ]);
  const said = noticeOf(visit, notices);
  const actions = mayOwn('stacks') ? html`<a class="button primary" href="${path}/new">Upload a stack</a>` : null;
  const body = html`${said === undefined ? null : notice('good', said)} ${problem}
    <p class="lead">
      Software for clusters, packaged as Terraform modules. Applying a stack to a cluster starts a run that you can
      follow, and destroy later.
    </p>
    ${filterForm(path, filterFields(chosen, all.data))}
    <div id="results">
      ${list.data.length === 0 ? nothing(visit, chosen) : cards(list.data)} ${pager(path, chosen, list)}
    </div>`;
  return page(visit, { title: 'Stacks', actions, body });
}

interface Chosen extends Readonly<Record<string, string>> {
  readonly search: string;
  readonly category: string;
}

function filterFields({ search, category }: Chosen, all: readonly StackAnswer[]): MaybeHtml {
  const found = all.flatMap((stack) => stack.category ?? []);
  const categories = [...new Set([...usualCategories, ...found, ...(category === '' ? [] : [category])])];
  const choices = categories.toSorted((a, b) => a.localeCompare(b, 'en')).map((one) => ({ value: one, label: one }));
  return [
    field({ name: 'search', label: 'Search', value: search, placeholder: 'name, title, description', maxLength: 200 }),
    select('category', 'Category', [{ value: '', label: 'All categories' }, ...choices], category),
  ];
}

function nothing({ mayOwn }: Visit, { search, category }: Chosen): Html {
  if (search !== '' || category !== '') {
    return empty('No matching stacks', html`<a href="${path}">Show all stacks</a>.`);
  }
  return empty(
    'No stacks yet',
    mayOwn('stacks')
      ? html`<a href="${path}/new">Upload</a> a zip with a Terraform module.`
      : 'Ask an administrator to upload one.',
  );
}

function cards(list: readonly StackAnswer[]): Html {
  return html`<ul class="cards">
    ${list.map(
      (stack) =>
        html`<li class="card">
          ${stackIcon(stack)}
          <div class="card-text">
            <h2><a href="${stackPath(stack)}">${stack.title}</a></h2>
            <p class="quiet"><code>${stack.name}</code></p>
            <p class="card-description">${stack.description}</p>
            <p class="badges">
              ${stack.category === null ? null : badge('plain', stack.category)} ${visibilityBadge(stack)}
            </p>
          </div>
        </li>`,
    )}
  </ul>`;
}
