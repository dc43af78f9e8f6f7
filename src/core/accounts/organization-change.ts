import { eq } from 'drizzle-orm';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { AuditView, Author } from '#core/audit/audit.ts';
import type { ChangeContext } from './change.ts';
import type { DefaultLimits } from './organization-limits.ts';
import { lockOrganization, type Organization, toOrganization } from './organization.ts';
import { organizations } from './schema.ts';

/** Fields of an organization that can be changed. Absent and undefined fields stay unchanged. */
export interface OrganizationPatch {
  readonly name?: string | undefined;
  readonly status?: 'active' | 'suspended' | undefined;
  /** Replaces the limits that are present; null resets all. */
  readonly defaultLimits?: DefaultLimits | null | undefined;
  readonly maxActiveKeys?: number | null | undefined;
  readonly models?: readonly string[] | null | undefined;
  /** Pico-dollars. */
  readonly lowBalance?: bigint | null | undefined;
  readonly alertEmails?: readonly string[] | null | undefined;
  readonly membersMayApply?: boolean | undefined;
}

const conflict = (message: string, param?: string): AppError =>
  new AppError('conflict', { message, ...(param !== undefined && { param }) });

/** Returns the fields of an organization that the audit log stores. */
function auditView(organization: Organization): AuditView {
  const { name, status, defaultLimits, maxActiveKeys, models, lowBalance, alertEmails, membersMayApply } = organization;
  return {
    name,
    status,
    default_limits: {
      requests_per_minute: defaultLimits.requestsPerMinute,
      max_concurrency: defaultLimits.maxConcurrency,
      tokens_per_minute: defaultLimits.tokensPerMinute,
      monthly_token_limit: defaultLimits.monthlyTokenLimit,
    },
    max_active_keys: maxActiveKeys,
    models,
    wallet_alert_below: lowBalance === null ? null : formatUsd(lowBalance),
    alert_emails: alertEmails,
    members_may_apply: membersMayApply,
  };
}

function actionOf(before: Organization, after: Organization): string {
  if (before.status === after.status) return 'organization.changed';
  return after.status === 'suspended' ? 'organization.suspended' : 'organization.reactivated';
}

function changedFields(before: Organization, patch: OrganizationPatch) {
  const { name, status, defaultLimits, maxActiveKeys, models, lowBalance, alertEmails, membersMayApply } = patch;
  return {
    name: name ?? before.name,
    status: status ?? before.status,
    defaultLimits: defaultLimits === null ? {} : { ...before.defaultLimits, ...defaultLimits },
    maxActiveKeys: maxActiveKeys === undefined ? before.maxActiveKeys : maxActiveKeys,
    models: models === undefined ? before.models : models,
    alertEmails: alertEmails === undefined ? before.alertEmails : alertEmails,
    membersMayApply: membersMayApply ?? before.membersMayApply,
    // A new amount allows a new notification.
    ...(lowBalance !== undefined && lowBalance !== before.lowBalance && { lowBalance, lowBalanceToldAt: null }),
  };
}

/**
 * Changes an organization; null if there is no such organization. A patch without any field is not recorded.
 * @throws AppError conflict for a closed organization, and for suspending the platform's own organization
 */
export async function changeOrganization(
  context: ChangeContext,
  organizationId: string,
  patch: OrganizationPatch,
  author: Author,
): Promise<Organization | null> {
  const before = await lockOrganization(context.tx, organizationId);
  if (before === null) return null;
  if (before.status === 'closed') throw conflict('This organization is closed and cannot be reopened.');
  if (patch.status === 'suspended' && before.isPlatform) {
    throw conflict("status: the platform's own organization cannot be suspended.", 'status');
  }
  if (Object.values(patch).every((value) => value === undefined)) return before;
  const after = await update(context, organizationId, changedFields(before, patch));
  const views = { before: auditView(before), after: auditView(after) };
  await note(context, author, { action: actionOf(before, after), organizationId, ...views });
  return after;
}

/**
 * Closes an organization permanently. Null if there is none; a second call changes nothing.
 * @throws AppError conflict for the platform's own organization
 */
export async function closeOrganization(
  context: ChangeContext,
  organizationId: string,
  author: Author,
): Promise<Organization | null> {
  const before = await lockOrganization(context.tx, organizationId);
  if (before === null || before.status === 'closed') return before;
  if (before.isPlatform) throw conflict("The platform's own organization cannot be closed.");
  const after = await update(context, organizationId, { status: 'closed', closedAt: context.now });
  const views = { before: auditView(before), after: auditView(after) };
  await note(context, author, { action: 'organization.closed', organizationId, ...views });
  return after;
}

async function update(
  { tx }: ChangeContext,
  organizationId: string,
  fields: Partial<typeof organizations.$inferInsert>,
): Promise<Organization> {
  const [row] = await tx.update(organizations).set(fields).where(eq(organizations.id, organizationId)).returning();
  if (row === undefined) throw new Error('a locked row was not updated');
  return toOrganization(row);
}

interface Noted {
  readonly organizationId: string;
  readonly action: string;
  readonly before: AuditView;
  readonly after: AuditView;
}

async function note({ tx, audit }: ChangeContext, author: Author, noted: Noted): Promise<void> {
  const targetId = formatId('org', noted.organizationId);
  await audit.record(tx, { ...noted, author, targetType: 'organization', targetId });
}
