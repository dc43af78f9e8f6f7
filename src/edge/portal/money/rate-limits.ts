import type { CursorPageAnswer } from '#edge/contract/lists.ts';
import type { ProjectAnswer } from '#edge/contract/projects.ts';
import type { RateLimitAnswer } from '#edge/contract/organization-projects.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  beganWith,
  changesIn,
  count,
  empty,
  field,
  type Form,
  formToken,
  html,
  type Html,
  isEmpty,
  type MaybeHtml,
  numberOf,
  older,
  pathWith,
  queryOf,
  type Refusal,
  refused,
  RefusedError,
  section,
  table,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** Limits of a project for each model: a section of the project's page, with an edit page. */

const fields = [
  { name: 'max_requests_per_1_minute', label: 'Requests per minute' },
  { name: 'max_tokens_per_1_minute', label: 'Tokens per minute' },
  { name: 'max_requests_per_1_day', label: 'Requests per day' },
] as const;
type Field = (typeof fields)[number]['name'];

const apiPath = (projectId: string): string => `/v1/organization/projects/${encodeURIComponent(projectId)}/rate_limits`;
const pagePath = (projectId: string, model: string): string =>
  pathWith(`/portal/projects/${encodeURIComponent(projectId)}/limits`, { model });

const pageSize = 50;
const noModels =
  "No enabled model is allowed for this organization. A platform administrator can add an engine file, or change the organization's allowed models.";
const limitsMax = 100;

/** Returns null if the visitor may not see keys. */
export async function rateLimitSection(visit: Visit, { id }: ProjectAnswer): Promise<MaybeHtml> {
  if (!visit.may('keys')) return null;
  const asked = { limit: pageSize, after: queryOf(visit.context, 'limits_after') };
  const list = await visit.get<CursorPageAnswer<RateLimitAnswer>>(pathWith(apiPath(id), asked));
  const body = html`<p class="quiet">
      Limits per model for all keys of the project together. The limits of each key apply as well.
    </p>
    ${list.data.length === 0 ? empty('No models', noModels) : limitTable(id, list.data)}
    ${older(list.has_more ? pathWith(`/portal/projects/${id}`, { limits_after: list.last_id }) : null)}`;
  return section('limits', 'Limits by model', body);
}

function limitTable(projectId: string, limits: readonly RateLimitAnswer[]): Html {
  return table({
    caption: 'Project limits by model',
    columns: [
      { title: 'Model' },
      ...fields.map(({ label: title }) => ({ title, isNumber: true })),
      { title: 'Action' },
    ],
    rows: limits.map((limit) => [
      html`<code>${limit.model}</code>`,
      ...fields.map(({ name }) => shown(limit[name])),
      html`<a href="${pagePath(projectId, limit.model)}" aria-label="Change the limits for ${limit.model}">Change</a>`,
    ]),
  });
}

const shown = (limit: number | null): MaybeHtml =>
  limit === null ? html`<span class="quiet">unlimited</span>` : count(limit);

type Typed = Readonly<Record<Field, string>>;

const typedOf = (textOf: (name: Field) => string): Typed => ({
  max_requests_per_1_minute: textOf('max_requests_per_1_minute'),
  max_tokens_per_1_minute: textOf('max_tokens_per_1_minute'),
  max_requests_per_1_day: textOf('max_requests_per_1_day'),
});

const toBody = (typed: Typed) => Object.fromEntries(fields.map(({ name }) => [name, numberOf(typed[name])]));

const readProject = (visit: Visit, id: string): Promise<ProjectAnswer> =>
  visit.get<ProjectAnswer>(`/v1/projects/${encodeURIComponent(id)}`);

/** Finds the limit of a model. @throws RefusedError if the project has no such model */
async function readLimit(visit: Visit, projectId: string, model: string): Promise<RateLimitAnswer> {
  let after: string | null = null;
  for (;;) {
    const list: CursorPageAnswer<RateLimitAnswer> = await visit.get<CursorPageAnswer<RateLimitAnswer>>(
      pathWith(apiPath(projectId), { limit: limitsMax, after }),
    );
    const found = list.data.find((limit) => limit.model === model);
    if (found !== undefined) return found;
    if (!list.has_more)
      throw new RefusedError({
        status: 404,
        message: 'This project has no such model. Choose one on the page of the project.',
        problems: new Map(),
      });
    after = list.last_id;
  }
}

export async function rateLimitPage(visit: Visit, projectId: string): Promise<Response> {
  const project = await readProject(visit, projectId);
  const limit = await readLimit(visit, project.id, queryOf(visit.context, 'model') ?? '');
  return formPage(visit, project, { limit, typed: typedIn(limit), sent: null, refusal: null });
}

const typedIn = (limit: RateLimitAnswer): Typed => typedOf((name) => limit[name]?.toString() ?? '');

interface ShownForm {
  readonly limit: RateLimitAnswer;
  readonly typed: Typed;
  /** The form that the API rejected. */
  readonly sent: Form | null;
  readonly refusal: Refusal | null;
}

function formPage(
  visit: Visit,
  { id, name }: ProjectAnswer,
  { limit, typed, sent, refusal }: ShownForm,
): Response | Promise<Response> {
  const body = html`<p class="lead">
      Limits for all keys of the project <a href="/portal/projects/${id}">${name}</a> together, for
      <code>${limit.model}</code>. Requests over a limit return 429 with a retry time and cost nothing. Days are in UTC.
    </p>
    <form class="form" method="post" action="${pagePath(id, limit.model)}">
      ${formToken(visit)} ${beganWith(toBody(typedIn(limit)), sent)} ${refused(refusal)}
      <input type="hidden" name="model" value="${limit.model}" />
      <p class="hint">Leave a field empty for no limit.</p>
      ${fields.map((one) => field({ ...one, value: typed[one.name], refusal, inputMode: 'numeric', maxLength: 20, placeholder: 'unlimited' }))}
      <p class="buttons"><button class="primary">Save</button> <a href="/portal/projects/${id}">Cancel</a></p>
    </form>`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: `Limits for ${limit.model}`, body, status });
}

export async function changeRateLimit(visit: Visit, projectId: string, form: Form): Promise<Response> {
  const model = form.text('model');
  const typed = typedOf((name) => form.text(name));
  const changes = changesIn(form, toBody(typed));
  const path = `${apiPath(projectId)}/${encodeURIComponent(`rl-${model}`)}`;
  const changed = isEmpty(changes) ? null : await visit.send('POST', path, changes);
  if (changed?.ok === false) {
    const { refusal } = changed;
    // The form cannot be shown again: the visitor may not change the limit, or it does not exist.
    if (refusal.status === 403 || refusal.status === 404) throw new RefusedError(refusal);
    const project = await readProject(visit, projectId);
    const limit = await readLimit(visit, project.id, model);
    return formPage(visit, project, { limit, typed, sent: form, refusal });
  }
  return visit.context.redirect(`/portal/projects/${encodeURIComponent(projectId)}?notice=limits_saved`, 303);
}
