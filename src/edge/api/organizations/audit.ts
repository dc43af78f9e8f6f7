import { createRoute, z } from '@hono/zod-openapi';
import { AppError, needsPlatformAdmin } from '#base/errors.ts';
import { formatId, isUuid, parseId } from '#base/id.ts';
import type { AuditedChange, AuditFilter, AuditTrail } from '#core/audit/audit.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  listQuery,
  longText,
  organizationQuery,
  readCursor,
  timeBound,
  toListPage,
  toUnixSeconds,
} from '#edge/api/shared/shared.ts';
import { type AuditEntryAnswer, auditEntryListSchema, auditEntrySchema } from '#edge/contract/audit.ts';
import { type HttpContext, ValidationError } from '#edge/http/http.ts';

export interface AuditRoutesParts {
  readonly guards: Guards;
  readonly auditTrail: AuditTrail;
}

const { limit } = listQuery;

const route = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/audit',
    security: bearerSecurity,
    middleware: guards.may('audit.read'),
    request: {
      query: z.strictObject({
        ...organizationQuery,
        all_organizations: z
          .enum(['true', 'false'])
          .optional()
          .openapi({ description: 'true: entries of all organizations, for platform administrators only' }),
        action: longText(200)
          .optional()
          .openapi({ example: 'api_key.revoked', description: 'Only changes of this type' }),
        target_id: longText(200)
          .optional()
          .openapi({ description: 'Id of the changed object, such as `key_…`, `org_…` or an engine id' }),
        actor_id: longText(200).optional().openapi({
          description: '`user_…` or `svc_acct_…`: a user or service account with all its keys; `key_…`: one key',
        }),
        from: timeBound('At or after this date (midnight UTC) or RFC 3339 time'),
        to: timeBound('Before this date or time'),
        limit,
        after: z.string().max(512).optional().openapi({ description: '`next_cursor` of the previous page' }),
      }),
    },
    responses: { 200: jsonAnswer(auditEntryListSchema, 'One page') },
  });

/** @throws ValidationError for an id that is not of a user, a service account or a key */
function actorAsked(text: string | undefined): AuditFilter['actor'] {
  if (text === undefined) return null;
  const userId = parseId('user', text);
  if (userId !== null) return { userId };
  const keyId = parseId('key', text);
  if (keyId !== null) return { keyId };
  const serviceAccountId = parseId('svc_acct', text);
  if (serviceAccountId !== null) return { serviceAccountId };
  throw new ValidationError([{ field: 'actor_id', message: 'must be the id of a user, service account or key' }]);
}

type Entry = AuditEntryAnswer;

function actorOf({ keyId, userId, serviceAccountId }: AuditedChange): Entry['actor'] {
  const user = userId === null ? null : formatId('user', userId);
  const account = serviceAccountId === null ? null : formatId('svc_acct', serviceAccountId);
  const actsFor = { user_id: user, service_account_id: account };
  if (keyId !== null) return { type: 'key', id: formatId('key', keyId), ...actsFor };
  return { type: user === null ? 'system' : 'user', id: user, ...actsFor };
}

const { shape: states } = auditEntrySchema;

function toEntry(change: AuditedChange): Entry {
  return {
    id: change.id,
    object: 'audit.entry',
    created_at: toUnixSeconds(change.atMs),
    organization_id: formatId('org', change.organizationId),
    action: change.action,
    target_type: change.targetType,
    target_id: change.targetId,
    actor: actorOf(change),
    before: states.before.parse(change.before),
    after: states.after.parse(change.after),
    request_id: change.requestId,
  };
}

/**
 * Returns the organization whose changes are listed; null for all organizations.
 * @throws ValidationError, AppError insufficient_scope, not_found
 */
async function organizationAsked(context: HttpContext, guards: Guards, isOfAll: boolean): Promise<string | null> {
  if (!isOfAll) return guards.organizationOf(context);
  if (context.req.query('organization_id') !== undefined) {
    throw new ValidationError([
      { field: 'all_organizations', message: 'cannot be combined with "organization_id": send only one of them' },
    ]);
  }
  if (context.get('extent') !== 'any') throw new AppError('insufficient_scope', { message: needsPlatformAdmin });
  return null;
}

export function registerAuditRoutes(app: ApiApp, { guards, auditTrail }: AuditRoutesParts): void {
  app.openapi(route(guards), async (context) => {
    const query = context.req.valid('query');
    const { action, target_id: targetId, actor_id: actorId, from, to, limit, after } = query;
    if (from !== undefined && to !== undefined && from >= to) {
      throw new ValidationError([{ field: 'to', message: 'must be after "from"' }]);
    }
    const page = await auditTrail.list({
      organizationId: await organizationAsked(context, guards, query.all_organizations === 'true'),
      action: action ?? null,
      targetId: targetId ?? null,
      actor: actorAsked(actorId),
      fromMs: from ?? null,
      toMs: to ?? null,
      before: readCursor(after, (position) => (isUuid(position) ? position : null), 'after'),
      limit,
    });
    const next = page.more ? (page.changes.at(-1)?.id ?? null) : null;
    return context.json(toListPage(page.changes.map(toEntry), next), 200);
  });
}
