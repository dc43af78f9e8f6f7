import { z } from 'zod';
import { idText, orNull, unixSeconds, unixSecondsOrNull } from './fields.ts';
import { cursorPageOf } from './lists.ts';

/** Service accounts of a project, in the form of OpenAI's organization API. */

const fields = {
  object: z.literal('organization.project.service_account'),
  id: idText('svc_acct'),
  name: z.string(),
  role: z.literal('member'),
  created_at: unixSeconds,
};

/** A service account. */
export const serviceAccountSchema = z.object(fields).meta({ id: 'ServiceAccount' });

/** A new key of a service account. */
export const serviceAccountKeySchema = z
  .object({
    object: z.literal('organization.project.service_account.api_key'),
    id: idText('key'),
    name: z.string(),
    value: z.string().meta({ description: 'Secret, shown only once', example: 'sk-hg-8a1b2c3d4e5f-…' }),
    created_at: unixSeconds,
    expires_at: unixSecondsOrNull,
  })
  .meta({ id: 'ServiceAccountApiKey' });

/** A new service account with its first key. */
export const createdServiceAccountSchema = z
  .object({
    ...fields,
    api_key: orNull(serviceAccountKeySchema).meta({
      description: 'First key; null with `create_service_account_only`',
    }),
  })
  .meta({ id: 'CreatedServiceAccount' });

/** Value of `object` in the confirmation of a deletion. */
export const deletedObject = 'organization.project.service_account.deleted';

/** Confirms a deletion. */
export const deletedServiceAccountSchema = z
  .object({ object: z.literal(deletedObject), id: idText('svc_acct'), deleted: z.literal(true) })
  .meta({ id: 'ServiceAccountDeleted' });

/** A page of service accounts. */
export const serviceAccountListSchema = cursorPageOf(serviceAccountSchema, 'ServiceAccountList');

export type ServiceAccountAnswer = z.infer<typeof serviceAccountSchema>;
export type CreatedServiceAccountAnswer = z.infer<typeof createdServiceAccountSchema>;
