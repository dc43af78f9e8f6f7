import { parseId } from '#base/id.ts';
import type { LimitsView } from '#core/limits/limits.ts';
import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import type { OrganizationAnswer } from '#edge/contract/organizations.ts';
import { page, readKeys } from '#edge/portal/frame/frame.ts';
import {
  badge,
  count,
  empty,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  older,
  pathWith,
  type PortalParts,
  queryOf,
  records,
  tabs,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';

const statuses = ['active', 'expired', 'revoked'] as const;
const pageSize = 50;

/** Notices after a form. Only these texts are shown, never text from the address. */
const notices: Readonly<Record<string, string>> = {
  revoked: 'Key revoked. Requests with this key now return 401, and running requests stop within seconds.',
  saved: 'Key saved. Changes apply from the next request.',
};

export interface KeyQuota {
  readonly active: number;
  readonly max: number;
}

export async function readQuota(visit: Visit, { maxActiveKeys }: PortalParts): Promise<KeyQuota> {
  const [organization, list] = await Promise.all([readOrganization(visit), readKeys(visit, { status: 'active' })]);
  return {
    active: list.filter(({ held, service_account_id: account }) => !held && account === null).length,
    max: organization.max_active_keys ?? maxActiveKeys,
  };
}

export function readOrganization({ get, organizationId }: Visit): Promise<OrganizationAnswer> {
  return get<OrganizationAnswer>(`/v1/organizations/${organizationId}`);
}

/** Warns that the key limit is reached, before a form fails for it. */
export function fullNotice(visit: Visit, { active, max }: KeyQuota): MaybeHtml {
  if (active < max) return null;
  const mend = visit.may('organizations')
    ? html`As platform administrator you can also
        <a href="/portal/organizations/${visit.organizationId}#max_active_keys">raise the limit</a>.`
    : html`A platform administrator can raise the limit.`;
  return notice(
    'plain',
    html`<p>
      <strong>All ${max} active keys of this organization are in use.</strong> Revoke an unused key to create another;
      the list shows when each key was last used. ${mend}
    </p>`,
  );
}

export async function keysPage(visit: Visit, parts: PortalParts): Promise<Response> {
  const { context, get } = visit;
  const asked = queryOf(context, 'status');
  const status = statuses.find((one) => one === asked) ?? 'active';
  const path = pathWith('/v1/keys', { status, limit: pageSize, cursor: queryOf(context, 'cursor') });
  const [list, quota] = await Promise.all([get<ListAnswer<KeyAnswer>>(path), readQuota(visit, parts)]);
  const organizationId = parseId('org', visit.organizationId) ?? '';
  const left = await Promise.all(
    list.data.map(async (key) => (key.status === 'active' ? parts.remainingLimits(organizationId, key) : null)),
  );
  const said = noticeOf(visit, notices);
  const isFull = quota.active >= quota.max;
  const body = html`${said === undefined ? null : notice('good', said)} ${isFull ? fullNotice(visit, quota) : null}
  ${tabs(
    'Keys by status',
    statuses.map((one) => ({
      text:
        one === 'active'
          ? `Active (${quota.active} of ${quota.max})`
          : `${one.slice(0, 1).toUpperCase()}${one.slice(1)}`,
      href: `/portal/keys?status=${one}`,
      isHere: one === status,
    })),
  )}
  ${list.data.length === 0 ? none(status) : keyTable(list.data, left)}
  ${older(list.next_cursor === null ? null : pathWith('/portal/keys', { status, cursor: list.next_cursor }))}`;
  return page(visit, {
    title: 'Keys',
    actions: isFull ? null : html`<a class="button primary" href="/portal/keys/new">New key</a>`,
    body,
  });
}

function none(status: (typeof statuses)[number]): Html {
  if (status !== 'active')
    return empty(
      `No ${status} keys`,
      'Expired and revoked keys stay in this list, so that you can attribute their usage.',
    );
  return empty(
    'No active keys',
    html`Programs need a key to call models. <a href="/portal/keys/new">Create a key</a>.`,
  );
}

/** Formats how much is left of each limit of a key. */
export function limitsLeft(key: KeyAnswer, view: LimitsView | null): Html {
  const known: readonly (readonly [string, number | null, number | null | undefined])[] = [
    ['requests / min', key.requests_per_minute, view?.requests?.remaining],
    ['tokens / min', key.tokens_per_minute, view?.tokens?.remaining],
    ['concurrent requests', key.max_concurrency, view?.concurrencyLeft],
    ['tokens / month', key.monthly_token_limit, view?.monthTokensLeft],
  ];
  const lines = known.flatMap(([what, limit, left]): Html[] => {
    if (limit === null) return [];
    const shown = left === null || left === undefined ? '?' : count(left);
    return [html`<li><strong>${shown}</strong> <span class="quiet">of ${count(limit)} ${what}</span></li>`];
  });
  return lines.length === 0
    ? html`<span class="quiet">unlimited</span>`
    : html`<ul class="limits-left">
        ${lines}
      </ul>`;
}

/** Names the models of a key, or their number if there are many. */
const modelsText = (models: readonly string[]): string =>
  models.length > 3 ? `${models.length} models` : models.join(', ');

function keyTable(keys: readonly KeyAnswer[], left: readonly (LimitsView | null)[]): Html {
  return records({
    caption: 'Keys with their remaining limits',
    columns: ['Key', 'Scope', 'Last used', 'Expires', 'Remaining limits', 'Action'],
    rows: keys.map((key, index) => {
      const isActive = key.status === 'active';
      return [
        html`<a href="/portal/keys/${key.id}">${key.name}</a><br /><code class="quiet">${key.prefix}…${key.last4}</code
          >${key.held ? html` ${badge('plain', 'managed by the gateway, not counted')}` : null}${key.service_account_id === null ? null : html` ${badge('plain', 'service account')}`}${key.models === null ? null : html`<br /><span class="quiet">${modelsText(key.models)}</span>`}`,
        key.scope === 'management' ? badge('busy', 'management') : badge('plain', 'inference'),
        timeOf(key.last_used_at, 'never'),
        timeOf(key.expires_at, 'never'),
        isActive ? limitsLeft(key, left[index] ?? null) : html`<span class="quiet">–</span>`,
        isActive
          ? html`<a href="/portal/keys/${key.id}/delete" aria-label="Revoke ${key.name}">Revoke</a>`
          : html`<span class="quiet">${key.status}</span>`,
      ];
    }),
  });
}
