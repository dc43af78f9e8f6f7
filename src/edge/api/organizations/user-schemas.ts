import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { emailProblem, passwordCharacters, passwordProblem, type User } from '#core/accounts/accounts.ts';
import { noFields, someFields } from '#edge/api/shared/shared.ts';
import { nameText } from '#edge/contract/fields.ts';
import { roles, type UserAnswer } from '#edge/contract/users.ts';

export const email = z
  .string()
  .superRefine((text, context) => {
    const problem = emailProblem(text);
    if (problem !== null) context.addIssue({ code: 'custom', message: problem });
  })
  .openapi({
    format: 'email',
    maxLength: 254,
    example: 'ada@example.com',
    description: 'Email address; case-insensitive, and used by at most one account',
  });

const password = z
  .string()
  .superRefine((text, context) => {
    const problem = passwordProblem(text);
    if (problem !== null) context.addIssue({ code: 'custom', message: problem });
  })
  .openapi({
    format: 'password',
    minLength: passwordCharacters.min,
    maxLength: passwordCharacters.max,
    description: 'New password, which is never returned',
  });

const role = z.enum(roles);

interface NewSignIn {
  readonly email?: string | undefined;
  readonly password?: string | undefined;
}

function refineSignIn({ email: address, password: text }: NewSignIn, context: z.RefinementCtx): void {
  const problem = address === undefined || text === undefined ? null : passwordProblem(text, address);
  if (problem !== null) context.addIssue({ code: 'custom', path: ['password'], message: problem });
}

export const createSchema = z
  .strictObject({
    name: nameText(100),
    email,
    password,
    role: role
      .default('member')
      .openapi({ description: 'Role in the organization; only owners and platform administrators create owners' }),
  })
  .superRefine(refineSignIn)
  .openapi('CreateUser');

export const putSchema = z
  .looseObject({
    name: nameText(100).optional(),
    email: email.optional(),
    password: password.optional(),
    role: role.optional().openapi({ description: 'Role in the organization; ignored for your own user' }),
    current_password: z.string().max(1024, 'must have at most 1024 characters').optional().openapi({
      format: 'password',
      description: 'Your current password, required to change your own email address or password',
    }),
  })
  .refine(someFields, noFields)
  .superRefine(refineSignIn)
  .openapi('PutUser');

export function toAnswer(user: User): UserAnswer {
  return {
    id: formatId('user', user.id),
    name: user.name,
    email: user.email,
    platform_role: user.platformRole,
    memberships: user.memberships.map((one) => ({
      organization_id: formatId('org', one.organizationId),
      role: one.role,
    })),
    created_at: new Date(user.createdAtMs).toISOString(),
  };
}
