import type { OrganizationAnswer } from '#edge/contract/organizations.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import { limitFields, readOrganization } from '#edge/portal/keys/keys.ts';
import {
  beganWith,
  changesIn,
  count,
  facts,
  field,
  type Form,
  formToken,
  html,
  type Html,
  isEmpty,
  notice,
  type PortalParts,
  radios,
  type Refusal,
  refused,
  section,
  usdOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** The organization's page for its own administrators: its name and settings, and its limits read-only. */
export function ownOrganizationPage(visit: Visit, parts: PortalParts): Promise<Response> {
  return ownOrganizationPageOf(visit, parts, null);
}

async function ownOrganizationPageOf(
  visit: Visit,
  { maxActiveKeys }: PortalParts,
  wrong: Refused | null,
): Promise<Response> {
  const organization = await readOrganization(visit);
  const said = visit.takeNotice() === 'saved';
  const body = html`${said ? notice('good', 'Organization saved.') : null}
  ${visit.may('organization.rename') ? ownForm(visit, organization, wrong) : null}
  ${section('limits', 'Limits', limits(visit, organization, maxActiveKeys))}`;
  return page(visit, { title: organization.name, body, status: wrong === null ? 200 : statusOf(wrong.refusal) });
}

/** The form as it was sent. */
interface Typed {
  readonly name: string;
  /** USD; empty for no alert. */
  readonly alertBelow: string;
  readonly mayApply: boolean;
}

const typedOf = (organization: OrganizationAnswer): Typed => ({
  name: organization.name,
  alertBelow: organization.wallet_alert_below ?? '',
  mayApply: organization.members_may_apply,
});

/** A form that the API rejected. */
interface Refused {
  readonly typed: Typed;
  readonly form: Form;
  readonly refusal: Refusal;
}

const toBody = ({ name, alertBelow, mayApply }: Typed) => ({
  name,
  members_may_apply: mayApply,
  wallet_alert_below: alertBelow === '' ? null : usdOf(alertBelow),
});

const applying = [
  { value: 'true', label: 'All members' },
  { value: 'false', label: 'Owners and admins' },
];

function ownForm(visit: Visit, organization: OrganizationAnswer, wrong: Refused | null): Html {
  const { form = null, refusal = null, typed = typedOf(organization) } = wrong ?? {};
  const { name, alertBelow, mayApply } = typed;
  return html`<form class="form" method="post" action="/portal/organization">
    ${formToken(visit)} ${beganWith(toBody(typedOf(organization)), form)} ${refused(refusal)}
    ${field({ name: 'name', label: 'Name', value: name, refusal, isRequired: true, maxLength: 200 })}
    ${field({ name: 'wallet_alert_below', label: 'Low-balance alert (USD)', value: alertBelow, refusal, hint: 'Sends one email to each owner and administrator when the balance falls below this amount, if this gateway sends mail. Empty means no alert.', maxLength: 40 })}
    ${radios({ name: 'members_may_apply', legend: 'Who may apply stacks', choices: applying, chosen: String(mayApply), hint: 'Applies, cancels, retries and destroys runs on the clusters of the organization.' })}
    <p class="buttons"><button class="primary">Save</button></p>
    ${visit.may('webhooks') ? html`<p class="hint">Other alerts and event delivery: <a href="/portal/webhooks">webhooks and email alerts</a>.</p>` : null}
  </form>`;
}

function limits(visit: Visit, organization: OrganizationAnswer, maxActiveKeys: number): Html {
  const { default_limits: defaults, max_active_keys: max, models, id } = organization;
  const whose = visit.may('organizations')
    ? html`Change these limits on <a href="/portal/organizations/${id}">the platform page of this organization</a>.`
    : 'Platform administrators set these limits.';
  return html`<p class="quiet">${whose} Each key can have lower or higher limits.</p>
    ${facts([
      ['Maximum active keys', count(max ?? maxActiveKeys)],
      ...limitFields.map(({ name, label }) => {
        const limit = defaults[name];
        return [`${label} (new keys)`, limit === null ? 'unlimited' : count(limit)] as const;
      }),
      ['Allowed models', models === null ? 'all' : models.join(', ')],
    ])}`;
}

export async function changeOwnOrganization(visit: Visit, parts: PortalParts, form: Form): Promise<Response> {
  const [name, alertBelow] = [form.text('name'), form.text('wallet_alert_below').trim()];
  const typed = { name, alertBelow, mayApply: form.text('members_may_apply') !== 'false' };
  const changes = changesIn(form, form.has('wallet_alert_below') ? toBody(typed) : { name });
  const path = `/v1/organizations/${visit.organizationId}`;
  const changed = isEmpty(changes) ? null : await visit.send<OrganizationAnswer>('PATCH', path, changes);
  if (changed?.ok === false) {
    return ownOrganizationPageOf(visit, parts, { typed, form, refusal: changed.refusal });
  }
  return visit.context.redirect('/portal/organization?notice=saved', 303);
}
