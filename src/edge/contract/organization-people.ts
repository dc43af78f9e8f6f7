import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { roles } from './users.ts';
import { cursorPageOf } from './lists.ts';

/** Users and invitations in the form of OpenAI's organization API. */

/** A user of an organization. */
export const organizationUserSchema = z
  .object({
    object: z.literal('organization.user'),
    id: idText('user'),
    name: z.string(),
    email: z.string(),
    role: z.enum(roles),
    added_at: unixSeconds.meta({ description: 'When the account was created, in Unix seconds' }),
  })
  .meta({ id: 'OrganizationUser' });

/** An open invitation to an organization. */
const organizationInviteSchema = z
  .object({
    object: z.literal('organization.invite'),
    id: idText('inv'),
    email: z.string(),
    role: z.enum(['owner', 'reader']).meta({ description: '`reader` stands for the roles `admin` and `member`' }),
    status: z.literal('pending'),
    created_at: unixSeconds,
    expires_at: unixSeconds,
    accepted_at: z.null(),
    projects: z.array(z.strictObject({ id: idText('proj'), role: z.string() })).meta({ description: 'Always empty' }),
  })
  .meta({ id: 'OrganizationInvite' });

/** A page of users. */
export const organizationUserListSchema = cursorPageOf(organizationUserSchema, 'OrganizationUserList');

/** A page of invitations. */
export const organizationInviteListSchema = cursorPageOf(organizationInviteSchema, 'OrganizationInviteList');

export type OrganizationUserAnswer = z.infer<typeof organizationUserSchema>;
export type OrganizationInviteAnswer = z.infer<typeof organizationInviteSchema>;
