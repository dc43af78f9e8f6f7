import { z } from 'zod';
import { idText, textOrNull, unixSeconds } from './fields.ts';
import { linkText, roles } from './users.ts';
import { listOf } from './lists.ts';

/** Answers of `/v1/invitations`. */

const fields = {
  id: idText('inv'),
  organization_id: idText('org'),
  email: z.string(),
  role: z.enum(roles).meta({ description: 'Role in the organization once accepted' }),
  invited_by: textOrNull(z.string()).meta({
    description: 'Id of the user who sent the invitation; null if no user did',
  }),
  created_at: unixSeconds,
  expires_at: unixSeconds,
};

/** An open invitation. */
export const invitationSchema = z.object(fields).meta({ id: 'Invitation' });

/** A new invitation with its link. */
export const createdInvitationSchema = z.object({ ...fields, link: linkText }).meta({ id: 'CreatedInvitation' });

/** A page of invitations. */
export const invitationListSchema = listOf(invitationSchema, 'InvitationList');

export type InvitationAnswer = z.infer<typeof invitationSchema>;
export type CreatedInvitationAnswer = z.infer<typeof createdInvitationSchema>;
