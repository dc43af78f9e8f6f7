import { z } from 'zod';
import { extension, idText, unixSeconds, unixSecondsOrNull } from './fields.ts';
import { confinedField } from './keys.ts';
import { cursorPageOf } from './lists.ts';

/** Keys in the form of OpenAI's organization API. */

/** The user or service account that a key acts for. */
const ownerSchema = z.object({
  type: z.enum(['user', 'service_account']),
  user: z
    .object({ id: idText('user'), name: z.string(), email: z.string(), role: z.string(), created_at: unixSeconds })
    .optional(),
  service_account: z
    .object({ id: idText('svc_acct'), name: z.string(), role: z.literal('member'), created_at: unixSeconds })
    .optional(),
});

const keyFields = {
  id: idText('key'),
  name: z.string(),
  redacted_value: z.string().meta({ example: 'sk-hg-8a1b2c3d4e5f…x7Qd' }),
  created_at: unixSeconds,
  expires_at: unixSecondsOrNull,
  last_used_at: unixSecondsOrNull,
  confined: confinedField,
};

/** An inference key of a project. */
export const projectKeySchema = z
  .object({
    object: z.literal('organization.project.api_key'),
    ...keyFields,
    owner: ownerSchema,
    owner_project_access: z.literal('active'),
  })
  .meta({ id: 'OrganizationProjectApiKey' });

/** A management key. */
export const adminKeySchema = z
  .object({
    object: z.literal('organization.admin_api_key'),
    ...keyFields,
    owner: z.object({
      type: z.literal('user'),
      object: z.literal('organization.user'),
      id: idText('user'),
      name: z.string().optional(),
      role: z.string().optional(),
      created_at: unixSeconds.optional(),
    }),
  })
  .meta({ id: 'OrganizationAdminApiKey' });

/** A management key with its secret. */
export const createdAdminKeySchema = adminKeySchema
  .extend({ value: z.string().meta({ description: 'Secret, shown only once' }) })
  .meta(extension('CreatedOrganizationAdminApiKey', adminKeySchema));

/** Returns the schema that confirms a deletion. */
export function deletedKeySchema<Name extends string>(object: Name, name: string) {
  return z.object({ object: z.literal(object), id: idText('key'), deleted: z.literal(true) }).meta({ id: name });
}

/** A page of inference keys. */
export const projectKeyListSchema = cursorPageOf(projectKeySchema, 'OrganizationProjectApiKeyList');

/** A page of management keys. */
export const adminKeyListSchema = cursorPageOf(adminKeySchema, 'OrganizationAdminApiKeyList');

export type OwnerAnswer = z.infer<typeof ownerSchema>;
export type ProjectKeyAnswer = z.infer<typeof projectKeySchema>;
export type AdminKeyAnswer = z.infer<typeof adminKeySchema>;
