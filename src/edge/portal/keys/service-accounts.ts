import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { CursorPageAnswer } from '#edge/contract/lists.ts';
import type { ProjectAnswer } from '#edge/contract/projects.ts';
import type { CreatedServiceAccountAnswer, ServiceAccountAnswer } from '#edge/contract/service-accounts.ts';
import { page, readKeys, statusOf } from '#edge/portal/frame/frame.ts';
import {
  copyable,
  count,
  empty,
  field,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  older,
  pathWith,
  type PortalParts,
  queryOf,
  radios,
  type Refusal,
  refused,
  RefusedError,
  section,
  table,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { expiries } from './key-form.ts';
import { readyToPaste } from './key-pages.ts';

/** Service accounts of a project: a section of the project's page, with pages to create and delete them. */

const pageSize = 50;
const daySeconds = 86_400;
const expirySeconds: ReadonlyMap<string, number | null> = new Map([
  ['never', null],
  ['7d', 7 * daySeconds],
  ['30d', 30 * daySeconds],
  ['90d', 90 * daySeconds],
  ['1y', 365 * daySeconds],
]);

export const serviceAccountsPath = (projectId: string): string =>
  `/v1/organization/projects/${encodeURIComponent(projectId)}/service_accounts`;

const pagePath = (projectId: string): string => `/portal/projects/${projectId}/service-accounts`;

/** Returns null if the visitor may not see service accounts, or if the project is archived and has none. */
export async function serviceAccountSection(
  visit: Visit,
  { id, archived }: ProjectAnswer,
  keys: readonly KeyAnswer[],
): Promise<MaybeHtml> {
  if (archived || !visit.may('service_accounts')) return null;
  const asked = { limit: pageSize, after: queryOf(visit.context, 'after') };
  const list = await visit.get<CursorPageAnswer<ServiceAccountAnswer>>(pathWith(serviceAccountsPath(id), asked));
  const body = html`<p class="quiet">
      A service account represents a program, in this project only. Its keys stay valid when their creator leaves.
    </p>
    ${list.data.length === 0 ? empty('No service accounts', 'Create one for each program, so that its keys do not belong to a person.') : accountTable(id, list.data, keys)}
    ${older(list.has_more ? pathWith(`/portal/projects/${id}`, { after: list.last_id }) : null)}
    <p class="buttons"><a class="button" href="${pagePath(id)}/new">New service account</a></p>`;
  return section('service-accounts', 'Service accounts', body);
}

function accountTable(projectId: string, accounts: readonly ServiceAccountAnswer[], keys: readonly KeyAnswer[]): Html {
  return table({
    caption: 'Service accounts of the project',
    columns: [
      { title: 'Service account' },
      { title: 'Active keys', isNumber: true },
      { title: 'Created' },
      { title: 'Action' },
    ],
    rows: accounts.map(({ id, name, created_at: since }) => [
      html`${name}<br /><code class="quiet">${id}</code>`,
      count(keys.filter((key) => key.service_account_id === id).length),
      timeOf(since, 'never'),
      html`<a href="${pagePath(projectId)}/${id}/delete" aria-label="Delete ${name}">Delete</a>`,
    ]),
  });
}

interface Typed {
  readonly name: string;
  readonly expiry: string;
}

const readProject = (visit: Visit, id: string): Promise<ProjectAnswer> =>
  visit.get<ProjectAnswer>(`/v1/projects/${encodeURIComponent(id)}`);

export async function newServiceAccountPage(visit: Visit, projectId: string): Promise<Response> {
  return formPage(visit, await readProject(visit, projectId), { name: '', expiry: 'never' }, null);
}

function formPage(
  visit: Visit,
  { id, name: project }: ProjectAnswer,
  { name, expiry }: Typed,
  refusal: Refusal | null,
): Response | Promise<Response> {
  const body = html`<p class="lead">
      The service account works only in the project ${project}. It gets a key with the default limits of this
      organization.
    </p>
    <form class="form" method="post" action="${pagePath(id)}">
      ${formToken(visit)} ${refused(refusal)}
      ${field({ name: 'name', label: 'Name', value: name, hint: 'The program that uses the service account. Must be unique in the project.', refusal, isRequired: true, maxLength: 100 })}
      ${radios({ name: 'expiry', legend: 'Key expires after', choices: expiries, chosen: expiry, hint: 'The service account does not expire, and can get another key.' })}
      <p class="buttons">
        <button class="primary">Create service account</button> <a href="/portal/projects/${id}">Cancel</a>
      </p>
    </form>`;
  return page(visit, { title: 'New service account', body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function createServiceAccount(
  visit: Visit,
  parts: PortalParts,
  projectId: string,
  form: Form,
): Promise<Response> {
  const typed: Typed = { name: form.text('name'), expiry: form.text('expiry') };
  // An unknown expiry becomes 0, which the API rejects: it must not create a key that never expires.
  const seconds = expirySeconds.has(typed.expiry) ? expirySeconds.get(typed.expiry) : 0;
  const body = { name: typed.name, expires_in_seconds: seconds };
  const made = await visit.send<CreatedServiceAccountAnswer>('POST', serviceAccountsPath(projectId), body);
  if (made.ok) return madePage(visit, parts, projectId, made.body);
  if (made.refusal.status === 403 || made.refusal.status === 404) throw new RefusedError(made.refusal);
  return formPage(visit, await readProject(visit, projectId), typed, made.refusal);
}

async function madePage(
  visit: Visit,
  parts: PortalParts,
  projectId: string,
  { name, api_key: key }: CreatedServiceAccountAnswer,
): Promise<Response> {
  if (key === null) throw new Error('the API created no key for the service account');
  const returnTo = `/portal/projects/${projectId}`;
  const body = html`${notice('good', html`<p><strong>Copy the secret of the key now: it is shown only once.</strong> Store the secret where the program can read it; Headgate keeps only a hash.</p>`)}
    ${copyable('secret', key.value, 'Copy secret')} ${await readyToPaste(visit, parts, key.value)}
    <p class="buttons">
      <a class="button" href="${returnTo}">View project</a> <a href="/portal/keys/${key.id}">View key</a>
    </p>`;
  return page(visit, { title: name, body, returnTo });
}

const accountPath = (projectId: string, id: string): string =>
  `${serviceAccountsPath(projectId)}/${encodeURIComponent(id)}`;

export async function deleteServiceAccountPage(visit: Visit, projectId: string, id: string): Promise<Response> {
  const [account, keys] = await Promise.all([
    visit.get<ServiceAccountAnswer>(accountPath(projectId, id)),
    readKeys(visit, { service_account_id: id, status: 'active' }),
  ]);
  const ending =
    keys.length === 0
      ? html`<p>This service account has no active keys.</p>`
      : html`<p><strong>Requests with these keys will return 401, and running requests will stop:</strong></p>
          <ul>
            ${keys.map(
              (key) =>
                html`<li>
                  <a href="/portal/keys/${key.id}">${key.name}</a> (<code>${key.prefix}…${key.last4}</code>), last used:
                  ${timeOf(key.last_used_at, 'never')}
                </li>`,
            )}
          </ul>`;
  const body = html`<div class="confirm">
    <p>
      The service account <strong>${account.name}</strong> will be deleted permanently. This cannot be undone. Its usage
      and charges are kept.
    </p>
    ${ending}
    <form method="post" action="${pagePath(projectId)}/${account.id}/delete">
      ${formToken(visit)}
      <p class="buttons">
        <button class="danger">Delete ${account.name}</button> <a href="/portal/projects/${projectId}">Cancel</a>
      </p>
    </form>
  </div>`;
  return page(visit, { title: `Delete ${account.name}?`, body });
}

export async function deleteServiceAccount(visit: Visit, projectId: string, id: string): Promise<Response> {
  const ended = await visit.send('DELETE', accountPath(projectId, id));
  if (ended.ok) {
    return visit.context.redirect(`/portal/projects/${encodeURIComponent(projectId)}?notice=account_deleted`, 303);
  }
  const body = notice('bad', ended.refusal.message);
  return page(visit, { title: 'The service account was not deleted', body, status: statusOf(ended.refusal) });
}
