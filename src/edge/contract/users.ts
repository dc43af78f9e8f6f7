import { z } from 'zod';
import { idText, textOrNull, unixSeconds } from './fields.ts';
import { listOf, pageOf } from './lists.ts';

/** Answers of `/v1/users`. */

/** Roles in an organization. */
export const roles = ['owner', 'admin', 'member'] as const;

/** A user with the memberships that the caller may see. */
export const userSchema = z
  .object({
    id: idText('user'),
    name: z.string(),
    email: z.string(),
    platform_role: z.enum(['admin', 'user']).meta({ description: '`admin`: platform administrator' }),
    memberships: z.array(z.object({ organization_id: idText('org'), role: z.enum(roles) })).meta({
      description:
        'Memberships that the caller may see: all for platform administrators, else that of the organization',
    }),
    created_at: z.iso.datetime(),
  })
  .meta({ id: 'User' });

/** A page of users. */
export const userPageSchema = pageOf(userSchema, 'UserPage');

/** A link for a person, which works once. */
export const linkText = textOrNull(z.string()).meta({
  description: 'URL, or a path of the gateway if `HEADGATE_PUBLIC_URL` is not set; null if the link was sent by email',
});

/** A link to set a new password. */
export const resetLinkSchema = z
  .object({
    email: z.string().meta({ description: 'Email address of the account' }),
    link: linkText,
    expires_at: z.iso.datetime(),
  })
  .meta({ id: 'ResetLink' });

const identitySchema = z
  .object({
    issuer: z.string().meta({ description: 'Issuer URL of the OpenID provider' }),
    subject: z.string().meta({ description: 'Permanent id of the person at the provider' }),
    linked_at: z.iso.datetime(),
  })
  .meta({ id: 'UserIdentity' });

/** Identities at OpenID providers with which a user signs in. */
export const userIdentityListSchema = z.object({ data: z.array(identitySchema) }).meta({ id: 'UserIdentityList' });

export type UserAnswer = z.infer<typeof userSchema>;
export type OrganizationRole = (typeof roles)[number];
export type ResetLinkAnswer = z.infer<typeof resetLinkSchema>;
export type UserIdentityListAnswer = z.infer<typeof userIdentityListSchema>;

/** Answers of `/v1/invitations`. */

const invitationFields = {
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
export const invitationSchema = z.object(invitationFields).meta({ id: 'Invitation' });

/** A new invitation with its link. */
export const createdInvitationSchema = z
  .object({ ...invitationFields, link: linkText })
  .meta({ id: 'CreatedInvitation' });

/** A page of invitations. */
export const invitationListSchema = listOf(invitationSchema, 'InvitationList');

export type InvitationAnswer = z.infer<typeof invitationSchema>;
export type CreatedInvitationAnswer = z.infer<typeof createdInvitationSchema>;
