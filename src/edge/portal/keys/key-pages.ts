import { formatId, parseId, uuidv7 } from '#base/id.ts';
import type { CreatedKeyAnswer, KeyAnswer } from '#edge/contract/keys.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import type { ProjectAnswer } from '#edge/contract/projects.ts';
import type { RejectedRequestAnswer } from '#edge/contract/requests.ts';
import type { UsageSummaryAnswer } from '#edge/contract/usage.ts';
import { page, readPages, statusOf } from '#edge/portal/frame/frame.ts';
import { budgetSection } from '#edge/portal/money/money.ts';
import {
  badge,
  beganWith,
  changesIn,
  copyable,
  counted,
  type Figure,
  figures,
  type Form,
  formToken,
  html,
  type Html,
  isEmpty,
  type MaybeHtml,
  notice,
  onceOf,
  type PortalParts,
  type Refusal,
  sampleModel,
  snippetList,
  snippetsOf,
  timeOf,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import {
  confinementOf,
  confinements,
  createFields,
  editFields,
  type KeyFields,
  limitTexts,
  type NewKeyFields,
  toBody,
  typedFields,
} from './key-form.ts';
import { fullNotice, limitsLeft, readOrganization, readQuota } from './keys-page.ts';

/** Creates, changes and revokes a key. */

const hourMs = 3_600_000;

async function modelsIn(visit: Visit, { models }: PortalParts): Promise<readonly string[]> {
  return (await models(parseId('org', visit.organizationId) ?? '')).map(({ id }) => id);
}

async function formPage(
  visit: Visit,
  parts: PortalParts,
  typed: NewKeyFields | null,
  refusal: Refusal | null,
): Promise<Response> {
  const [projects, organization, quota, models] = await Promise.all([
    readPages<ProjectAnswer>(visit, '/v1/projects'),
    readOrganization(visit),
    readQuota(visit, parts),
    modelsIn(visit, parts),
  ]);
  const fields: NewKeyFields = typed ?? {
    once: uuidv7(),
    name: '',
    limits: limitTexts(organization.default_limits),
    models: '',
    storeRequests: false,
    cacheResponses: false,
    unservedTools: 'model',
    endUserFromHeader: false,
    confined: confinementOf(null),
    expiry: 'never',
    scope: 'inference',
    // While viewing another organization, the default is its first project, as in the API.
    projectId: visit.viewed === null ? formatId('proj', visit.signedIn.principal.project.id) : '',
  };
  if (quota.active >= quota.max && typed === null) {
    const none = html`${fullNotice(visit, quota)}
      <p class="buttons"><a class="button" href="/portal/keys">Back to keys</a></p>`;
    return page(visit, { title: 'New key', body: none });
  }
  const body = html`<p class="lead">
      ${quota.active} of ${quota.max} active keys are in use. The limits below are the defaults of this organization;
      you can change them for each key.
    </p>
    <form class="form" method="post" action="/portal/keys">
      ${formToken(visit)}
      <input type="hidden" name="once" value="${fields.once}" /> ${createFields(fields, projects, { models, refusal })}
      <p class="buttons"><button class="primary">Create key</button> <a href="/portal/keys">Cancel</a></p>
    </form>`;
  return page(visit, { title: 'New key', body, status: refusal === null ? 200 : statusOf(refusal) });
}

export function newKeyPage(visit: Visit, parts: PortalParts): Promise<Response> {
  return formPage(visit, parts, null, null);
}

export async function createKey(visit: Visit, parts: PortalParts, form: Form): Promise<Response> {
  const fields: NewKeyFields = {
    ...typedFields(form),
    once: form.text('once'),
    expiry: form.text('expiry'),
    scope: form.text('scope'),
    projectId: form.text('project_id'),
  };
  const { once, expiry, scope, projectId } = fields;
  const body = { ...toBody(fields), expiry, scope, ...(projectId !== '' && { project_id: projectId }) };
  const headers = once === '' ? {} : { 'idempotency-key': onceOf(once, body) };
  const made = await visit.send<CreatedKeyAnswer>('POST', '/v1/keys', body, headers);
  if (made.ok) return madePage(visit, parts, made.body);
  const before = made.refusal.status === 409 ? /\bkey_[0-9a-f]{32}\b/.exec(made.refusal.message)?.[0] : undefined;
  return before === undefined ? formPage(visit, parts, fields, made.refusal) : madeBeforePage(visit, before);
}

/** Answers a form that was sent twice, because its answer was lost (the gateway ended) or somebody resent it. */
function madeBeforePage(visit: Visit, id: string): Response | Promise<Response> {
  const body = html`${notice('plain', html`<p><strong>This form already created a key. No second key was created.</strong> The secret was shown only in the first response.</p>`)}
    <p>If you did not see the secret, rotate it. The key keeps its limits, usage and project.</p>
    <p class="buttons">
      <a class="button" href="/portal/keys/${id}">View key</a>
      <a class="button" href="/portal/keys/${id}/rotate">Rotate secret</a>
      <a href="/portal/keys/new">Create another key</a>
    </p>`;
  return page(visit, { title: 'Key already created', body, status: 409, returnTo: '/portal/keys' });
}

/** Shows how to use a new secret. Returns null if the organization has no model. */
export async function readyToPaste(visit: Visit, { models }: PortalParts, secret: string): Promise<MaybeHtml> {
  const list = await models(parseId('org', visit.organizationId) ?? '');
  const model = sampleModel(list);
  if (model === undefined) return null;
  return html`<section aria-labelledby="use-title">
    <h2 id="use-title">Example code</h2>
    <p class="quiet">
      The examples contain the secret, for a first test. Programs should read the key from an environment variable.
    </p>
    ${snippetList(snippetsOf({ origin: visit.origin, model, secret }))}
  </section>`;
}

/** Shows the secret of a new key. Secrets are shown only in the answer that creates or rotates them. */
async function madePage(visit: Visit, parts: PortalParts, key: CreatedKeyAnswer): Promise<Response> {
  const body = html`${notice('good', html`<p><strong>Copy the secret now: it is shown only once.</strong> Store the secret where your program can read it; Headgate keeps only a hash.</p>`)}
    ${copyable('secret', key.secret, 'Copy secret')} ${await readyToPaste(visit, parts, key.secret)}
    <p class="buttons">
      <a class="button" href="/portal/keys">Back to keys</a> <a href="/portal/usage?key=${key.id}">Requests</a>
    </p>`;
  return page(visit, { title: key.name, body, returnTo: '/portal/keys' });
}

function state(key: KeyAnswer): MaybeHtml {
  return key.status === 'active' ? badge('good', 'active') : badge('plain', key.status);
}

function actionsOf({ id, status, held }: KeyAnswer): Html {
  const isActive = status === 'active';
  return html`<a class="button" href="/portal/usage?key=${id}">Requests</a>
    ${isActive && !held ? html`<a class="button" href="/portal/keys/${id}/rotate">Rotate secret</a>` : null}
    ${isActive ? html`<a class="button danger" href="/portal/keys/${id}/delete">Revoke</a>` : null}`;
}

/** Shows until when a former secret works. Returns nothing if none does. */
function formerOf({ status, former_secrets_end_at: end }: KeyAnswer): readonly Figure[] {
  if (status !== 'active' || end === null) return [];
  return [{ label: 'Former secret', value: timeOf(end, 'never'), note: 'valid until then' }];
}

/** Returns the service account's name, or its id if it was deleted; null if the key belongs to a user. */
async function findServiceAccount({ find }: Visit, key: KeyAnswer): Promise<string | null> {
  const { project_id: projectId, service_account_id: id } = key;
  if (id === null) return null;
  const account = await find<{ readonly name: string }>(
    `/v1/organization/projects/${projectId}/service_accounts/${id}`,
  );
  return account?.name ?? id;
}

function ownerOf(account: string | null): readonly Figure[] {
  return account === null ? [] : [{ label: 'Owner', value: account, note: 'service account' }];
}

/** Shows the last kept error of the key. Returns nothing if there is none. */
async function lastRejected(visit: Visit, { id }: KeyAnswer): Promise<readonly Figure[]> {
  const path = `/v1/usage/rejected?limit=1&key_id=${id}`;
  const [last] = (await visit.get<ListAnswer<RejectedRequestAnswer>>(path)).data;
  if (last === undefined) return [];
  const value = html`<a href="/portal/usage/${last.id}"><code>${last.code}</code></a>`;
  return [{ label: 'Last rejected request', value, note: timeOf(last.created_at, 'never') }];
}

function confinedText(confined: boolean | null): string {
  return confinements.find(({ value }) => value === confinementOf(confined))?.label ?? '–';
}

interface ShownKey {
  readonly key: KeyAnswer;
  readonly fields: KeyFields;
  /** The form that the API rejected. */
  readonly form?: Form;
  readonly refusal: Refusal | null;
}

const fieldsOf = (key: KeyAnswer): KeyFields => ({
  name: key.name,
  limits: limitTexts(key),
  models: (key.models ?? []).join('\n'),
  storeRequests: key.store_requests,
  cacheResponses: key.cache_responses,
  unservedTools: key.unserved_tools ?? 'model',
  endUserFromHeader: key.end_user_from_header,
  confined: key.service_account_id === null ? confinementOf(key.confined) : '',
});

async function keyPageOf(visit: Visit, parts: PortalParts, shown: ShownKey): Promise<Response> {
  const { key, fields, refusal } = shown;
  const isActive = key.status === 'active';
  const [left, project, account, models, rejected] = await Promise.all([
    isActive ? parts.remainingLimits(parseId('org', visit.organizationId) ?? '', key) : null,
    visit.send<ProjectAnswer>('GET', `/v1/projects/${key.project_id}`),
    findServiceAccount(visit, key),
    modelsIn(visit, parts),
    lastRejected(visit, key),
  ]);
  const facts = figures([
    { label: 'Key', value: html`<code>${key.prefix}…${key.last4}</code>`, note: state(key) },
    { label: 'Scope', value: key.scope, note: 'cannot be changed' },
    {
      label: 'Project',
      value: project.ok ? html`<a href="/portal/projects/${key.project_id}">${project.body.name}</a>` : '–',
      note: project.ok && project.body.archived ? 'archived: its keys are rejected' : 'cannot be changed',
    },
    { label: 'Models', value: key.models === null ? 'all' : key.models.join(', ') },
    { label: 'Confined to project', value: confinedText(key.confined) },
    ...ownerOf(account),
    { label: 'Created', value: timeOf(key.created_at, 'never') },
    { label: 'Last used', value: timeOf(key.last_used_at, 'never') },
    {
      label: key.revoked_at === null ? 'Expires' : 'Revoked',
      value: timeOf(key.revoked_at ?? key.expires_at, 'never'),
    },
    ...formerOf(key),
    ...rejected,
  ]);
  const limits = isActive
    ? html`<section aria-labelledby="left-title">
        <h2 id="left-title">Remaining limits</h2>
        ${limitsLeft(key, left)}
      </section>`
    : null;
  const form =
    key.status === 'active'
      ? html`<form class="form" method="post" action="/portal/keys/${key.id}">
          ${formToken(visit)} ${beganWith(toBody(fieldsOf(key)), shown.form ?? null)}
          ${editFields(fields, { models, refusal })}
          <p class="buttons"><button class="primary">Save</button> <a href="/portal/keys">Cancel</a></p>
        </form>`
      : html`<p>This key is ${key.status} and cannot be changed. Its usage is kept.</p>`;
  const budgets = isActive ? await budgetSection(visit, 'api_key', key.id) : null;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, {
    title: key.name,
    actions: actionsOf(key),
    body: html`${facts}${limits}${budgets}${form}`,
    status,
  });
}

export async function keyPage(visit: Visit, parts: PortalParts, id: string): Promise<Response> {
  const key = await visit.get<KeyAnswer>(`/v1/keys/${encodeURIComponent(id)}`);
  return keyPageOf(visit, parts, { key, fields: fieldsOf(key), refusal: null });
}

export async function changeKey(visit: Visit, parts: PortalParts, id: string, form: Form): Promise<Response> {
  const path = `/v1/keys/${encodeURIComponent(id)}`;
  const fields = typedFields(form);
  const changes = changesIn(form, toBody(fields));
  const changed = isEmpty(changes) ? null : await visit.send<KeyAnswer>('PATCH', path, changes);
  if (changed === null || changed.ok) return visit.context.redirect('/portal/keys?notice=saved', 303);
  return keyPageOf(visit, parts, { key: await visit.get<KeyAnswer>(path), fields, form, refusal: changed.refusal });
}

export async function deletePage(visit: Visit, { clock }: PortalParts, id: string): Promise<Response> {
  const fromMs = clock.now() - hourMs;
  const from = new Date(fromMs).toISOString();
  const [key, summary] = await Promise.all([
    visit.get<KeyAnswer>(`/v1/keys/${encodeURIComponent(id)}`),
    visit.get<UsageSummaryAnswer>(`/v1/usage/summary?group_by=key_id&from=${encodeURIComponent(from)}`),
  ]);
  const used = summary.data.find(({ key_id }) => key_id === key.id);
  const ends = 'After the revocation, requests with this key return 401, and running requests stop within seconds.';
  const lastUse = timeOf(key.last_used_at, 'never');
  const breaks =
    used !== undefined && used.num_model_requests > 0
      ? html`<p>
          <strong>This key sent ${counted(used.num_model_requests, 'request')} in the last hour</strong>
          (${usd(used.cost)}). ${ends}
        </p>`
      : // Usage of running requests is recorded when they end.
        (key.last_used_at ?? 0) * 1000 >= fromMs
        ? html`<p>
            <strong>This key was used in the last hour</strong> (${lastUse}), and requests may still be running. ${ends}
          </p>`
        : html`<p>This key was not used in the last hour. Last used: ${lastUse}.</p>`;
  const body = html`<div class="confirm">
    <p>
      The key <strong>${key.name}</strong> (<code>${key.prefix}…${key.last4}</code>) will be revoked permanently. This
      cannot be undone. Its usage and charges are kept.
    </p>
    ${breaks}
    <form method="post" action="/portal/keys/${key.id}/delete">
      ${formToken(visit)}
      <p class="buttons"><button class="danger">Revoke ${key.name}</button> <a href="/portal/keys">Cancel</a></p>
    </form>
  </div>`;
  return page(visit, { title: `Revoke ${key.name}?`, body });
}

export async function deleteKey(visit: Visit, id: string): Promise<Response> {
  const ended = await visit.send<KeyAnswer>('DELETE', `/v1/keys/${encodeURIComponent(id)}`);
  if (ended.ok) return visit.context.redirect('/portal/keys?notice=revoked', 303);
  const body = notice('bad', ended.refusal.message);
  return page(visit, { title: 'The key was not revoked', body, status: statusOf(ended.refusal) });
}
