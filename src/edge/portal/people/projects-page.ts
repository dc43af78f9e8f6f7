import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { PageAnswer } from '#edge/contract/lists.ts';
import type { ProjectAnswer } from '#edge/contract/projects.ts';
import { assets, page, readKeys, statusOf } from '#edge/portal/frame/frame.ts';
import { serviceAccountSection } from '#edge/portal/keys/keys.ts';
import { budgetSection, rateLimitSection } from '#edge/portal/money/money.ts';
import {
  badge,
  beganWith,
  changesIn,
  count,
  empty,
  facts,
  field,
  type Form,
  formToken,
  html,
  type Html,
  isEmpty,
  type MaybeHtml,
  notice,
  noticeOf,
  pager,
  pathWith,
  queryOf,
  radios,
  type Refusal,
  refused,
  section,
  sortColumn,
  sortOf,
  table,
  time,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';

const pageSize = 25;
const sorts = ['created_at', 'name'] as const;

interface Typed {
  readonly name: string;
  readonly description: string;
  readonly visibility: string;
}

const notices: Readonly<Record<string, string>> = {
  made: 'Project created. Choose this project when you create a key.',
  saved: 'Project saved.',
  archived: 'Project archived. Its keys are rejected, and it accepts no new keys.',
  limits_saved: 'Limits changed, in effect from the next request.',
  restored: 'Project unarchived. Its keys work again; its former service accounts stay deleted.',
  account_deleted:
    'Service account deleted. Requests with its keys now return 401, and running requests stop within seconds.',
};

const visibilities = [
  { value: 'private', label: 'Private' },
  { value: 'public', label: 'Public' },
] as const;
const visibilityHint =
  'Private: only administrators of the organization and keys of the project can see and use the project. Public: everyone in the organization can see the project, and keys of members can send requests in it, which count against its budgets and limits.';

export async function projectsPage(visit: Visit): Promise<Response> {
  const { context } = visit;
  const sort = sortOf(queryOf(context, 'sort'), sorts, '-created_at');
  const path = pathWith('/v1/projects', { sort, limit: pageSize, page: queryOf(context, 'page') });
  const [list, keys] = await Promise.all([visit.get<PageAnswer<ProjectAnswer>>(path), activeKeys(visit)]);
  const sorted = { path: '/portal/projects', query: {}, sort };
  const said = noticeOf(visit, notices);
  const body = html`${said === undefined ? null : notice('good', said)}
    <p class="lead">A project groups keys and usage, for example of a product or a team.</p>
    ${
      list.data.length === 0
        ? empty('No projects', 'This page of the list has no project that you can see.')
        : table({
            caption: 'Projects',
            list: list.pagination.pages > 1 ? 'part' : 'whole',
            columns: [
              { ...sortColumn(sorted, 'name', 'Project'), isWide: true },
              { title: 'Visibility' },
              ...(keys === null ? [] : [{ title: 'Active keys', isNumber: true }]),
              sortColumn(sorted, 'created_at', 'Created'),
              { title: 'Status' },
            ],
            rows: list.data.map((project) => [
              html`<a href="/portal/projects/${project.id}">${project.name}</a
                >${project.description === '' ? null : html`<br /><span class="quiet clipped">${project.description}</span>`}`,
              project.visibility,
              ...(keys === null
                ? []
                : [count(keys.filter(({ project_id, held }) => project_id === project.id && !held).length)]),
              time(Date.parse(project.created_at)),
              project.archived ? badge('plain', 'archived') : badge('good', 'active'),
            ]),
          })
    }
    ${pager('/portal/projects', { sort }, list.pagination)}`;
  const actions = visit.may('projects')
    ? html`<a class="button primary" href="/portal/projects/new">New project</a>`
    : null;
  return page(visit, { title: 'Projects', actions, body, script: assets.lists });
}

/** Reads the organization's active keys; null if the visitor may not list keys. */
async function activeKeys(visit: Visit, projectId?: string): Promise<readonly KeyAnswer[] | null> {
  return visit.may('keys') ? readKeys(visit, { status: 'active', project_id: projectId }) : null;
}

function fields({ name, description, visibility }: Typed, refusal: Refusal | null): Html {
  return html`${refused(refusal)}
  ${field({ name: 'name', label: 'Name', value: name, hint: 'Must be unique in the organization.', refusal, isRequired: true, maxLength: 100 })}
  ${field({ name: 'description', label: 'Description', value: description, refusal, maxLength: 1000 })}
  ${radios({ name: 'visibility', legend: 'Visibility', choices: visibilities, chosen: visibility, hint: visibilityHint })}`;
}

const typedOf = (form: Form): Typed => ({
  name: form.text('name'),
  description: form.text('description'),
  visibility: form.text('visibility'),
});

export function newProjectPage(visit: Visit): Promise<Response> {
  return newProjectPageOf(visit, { name: '', description: '', visibility: 'private' }, null);
}

async function newProjectPageOf(visit: Visit, typed: Typed, refusal: Refusal | null): Promise<Response> {
  const body = html`<form class="form" method="post" action="/portal/projects">
    ${formToken(visit)} ${fields(typed, refusal)}
    <p class="buttons"><button class="primary">Create project</button> <a href="/portal/projects">Cancel</a></p>
  </form>`;
  return page(visit, { title: 'New project', body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function createProject(visit: Visit, form: Form): Promise<Response> {
  const typed = typedOf(form);
  const made = await visit.send<ProjectAnswer>('POST', '/v1/projects', typed);
  if (!made.ok) return newProjectPageOf(visit, typed, made.refusal);
  return visit.context.redirect('/portal/projects?notice=made', 303);
}

const apiPath = (id: string): string => `/v1/projects/${encodeURIComponent(id)}`;

export async function projectPage(visit: Visit, id: string): Promise<Response> {
  const project = await visit.get<ProjectAnswer>(apiPath(id));
  return projectPageOf(visit, { project, typed: project, sent: null, refusal: null });
}

interface ShownProject {
  readonly project: ProjectAnswer;
  readonly typed: Typed;
  /** The form that the API rejected. */
  readonly sent: Form | null;
  readonly refusal: Refusal | null;
}

const toBody = ({ name, description, visibility }: Typed) => ({ name, description, visibility });

async function projectPageOf(visit: Visit, { project, typed, sent, refusal }: ShownProject): Promise<Response> {
  const keys = await activeKeys(visit, project.id);
  const said = noticeOf(visit, notices);
  const form = visit.may('projects')
    ? html`<form class="form" method="post" action="/portal/projects/${project.id}">
        ${formToken(visit)} ${beganWith(toBody(project), sent)} ${fields(typed, refusal)}
        <p class="buttons"><button class="primary">Save</button> <a href="/portal/projects">Cancel</a></p>
      </form>`
    : facts([
        ['Description', project.description === '' ? html`<span class="quiet">none</span>` : project.description],
        ['Visibility', project.visibility],
      ]);
  const body = html`${said === undefined ? null : notice('good', said)}
  ${project.archived ? notice('plain', 'This project is archived: its keys are rejected, and it accepts no new keys.') : null}
  ${form} ${await budgetSection(visit, 'project', project.id)} ${await rateLimitSection(visit, project)}
  ${await serviceAccountSection(visit, project, keys ?? [])}
  ${keys === null ? null : section('keys', 'Active keys', keyTable(keys))}`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: project.name, actions: actions(visit, project), body, status });
}

function actions(visit: Visit, { id, archived }: ProjectAnswer): MaybeHtml {
  const usage = visit.may('usage.read')
    ? html`<a class="button" href="/portal/usage?project=${id}">Requests</a>`
    : null;
  if (!visit.may('projects')) return usage;
  if (!archived) return html`${usage} <a class="button danger" href="/portal/projects/${id}/archive">Archive</a>`;
  return html`${usage}
    <form method="post" action="/portal/projects/${id}/archive">
      ${formToken(visit)}<button class="primary" name="archived" value="no">Unarchive</button>
    </form>`;
}

function keyTable(keys: readonly KeyAnswer[]): Html {
  if (keys.length === 0) {
    return empty('No active keys', html`<a href="/portal/keys/new">Create a key</a> and choose this project.`);
  }
  return table({
    caption: 'Active keys of the project',
    columns: [{ title: 'Key', isWide: true }, { title: 'Last used' }, { title: 'Expires' }],
    rows: keys.map(
      ({ id, name, prefix, last4, held, service_account_id: account, last_used_at: used, expires_at: expires }) => [
        html`<a href="/portal/keys/${id}">${name}</a><br /><code class="quiet">${prefix}…${last4}</code
          >${held ? html` ${badge('plain', 'managed by the gateway, not counted')}` : null}${account === null ? null : html` ${badge('plain', 'service account')}`}`,
        timeOf(used, 'never'),
        timeOf(expires, 'never'),
      ],
    ),
  });
}

export async function changeProject(visit: Visit, id: string, form: Form): Promise<Response> {
  const typed = typedOf(form);
  const changes = changesIn(form, toBody(typed));
  const changed = isEmpty(changes) ? null : await visit.send<ProjectAnswer>('PATCH', apiPath(id), changes);
  if (changed?.ok === false) {
    const project = await visit.get<ProjectAnswer>(apiPath(id));
    return projectPageOf(visit, { project, typed, sent: form, refusal: changed.refusal });
  }
  return visit.context.redirect(`/portal/projects/${encodeURIComponent(id)}?notice=saved`, 303);
}

export async function archivePage(visit: Visit, id: string): Promise<Response> {
  const project = await visit.get<ProjectAnswer>(apiPath(id));
  const keys = (await activeKeys(visit, project.id)) ?? [];
  const body = html`<div class="confirm">
    <p>
      The project <strong>${project.name}</strong> rejects requests and new keys until it is unarchived. Its usage is
      kept. Its service accounts are deleted, and their keys revoked, permanently.
    </p>
    ${
      keys.length === 0
        ? html`<p>This project has no active keys.</p>`
        : html`<p><strong>These keys will be rejected:</strong></p>
            ${keyTable(keys)}`
    }
    <form method="post" action="/portal/projects/${project.id}/archive">
      ${formToken(visit)}
      <p class="buttons">
        <button class="danger" name="archived" value="yes">Archive ${project.name}</button>
        <a href="/portal/projects/${project.id}">Cancel</a>
      </p>
    </form>
  </div>`;
  return page(visit, { title: `Archive ${project.name}?`, body });
}

export async function archiveProject(visit: Visit, id: string, form: Form): Promise<Response> {
  const archived = form.text('archived') !== 'no';
  const changed = await visit.send<ProjectAnswer>('PATCH', apiPath(id), { archived });
  if (changed.ok) {
    const said = archived ? 'archived' : 'restored';
    return visit.context.redirect(`/portal/projects/${changed.body.id}?notice=${said}`, 303);
  }
  const project = await visit.get<ProjectAnswer>(apiPath(id));
  return projectPageOf(visit, { project: project, typed: project, sent: null, refusal: changed.refusal });
}
