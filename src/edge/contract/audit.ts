import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { listOf } from './lists.ts';

/** Answers of `/v1/audit`. */

const view = z.record(z.string(), z.unknown()).nullable();

/** A change and who made it. */
export const auditEntrySchema = z
  .object({
    id: z.string(),
    object: z.literal('audit.entry'),
    created_at: unixSeconds,
    organization_id: idText('org'),
    action: z.string().meta({ example: 'api_key.revoked', description: 'Type of the change' }),
    target_type: z.string().meta({ example: 'api_key', description: 'Type of the changed object' }),
    target_id: z
      .string()
      .meta({ example: 'key_019ab1c2d3e47f008a1b2c3d4e5f6071', description: 'Id of the changed object' }),
    actor: z
      .object({
        type: z.enum(['key', 'user', 'system']).meta({
          description: '`key`: an API key. `user`: a user signed in to the portal. `system`: the gateway itself',
        }),
        id: z.string().nullable().meta({ description: 'Id of the key or user; null for the gateway itself' }),
        user_id: idText('user').nullable().meta({ description: 'User that the key acts for' }),
        service_account_id: idText('svc_acct').nullable().meta({
          description: 'Service account that the key acts for',
        }),
      })
      .meta({ description: 'Who made the change; a platform administrator may belong to another organization' }),
    before: view.meta({ description: 'State before the change; null for a creation' }),
    after: view.meta({ description: 'State after the change; null for a deletion' }),
    request_id: z.string().nullable().meta({ description: '`x-request-id` of the response' }),
  })
  .meta({ id: 'AuditEntry' });

/** A page of the audit log. */
export const auditEntryListSchema = listOf(auditEntrySchema, 'AuditEntryList');

export type AuditEntryAnswer = z.infer<typeof auditEntrySchema>;
