import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { emailProblem, passwordCharacters, passwordProblem, type User } from '#core/accounts/accounts.ts';
import { idText, nameText, noFields, pageOf, someFields } from '#edge/api/shared/shared.ts';

export const roles = ['owner', 'admin', 'member'] as const;

export const userSchema = z
  .object({
    id: idText('user'),
    name: z.string(),
    email: z.string(),
    platform_role: z.enum(['admin', 'user']).openapi({ description: '`admin` is a platform administrator' }),
    memberships: z
      .array(z.object({ organization_id: idText('org'), role: z.enum(roles) }))
      .openapi({ description: 'Membership in the organization; platform administrators see all memberships' }),
    created_at: z.iso.datetime(),
  })
  .openapi('User');

export const userPageSchema = pageOf(userSchema, 'UserPage');

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
    description: 'Belongs to at most one account, in any case',
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
    description: 'Never returned',
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
      .openapi({ description: 'Role in the organization; owners are created by owners and platform administrators' }),
  })
  .superRefine(refineSignIn)
  .openapi('CreateUser');

export const putSchema = z
  .looseObject({
    name: nameText(100).optional(),
    email: email.optional(),
    password: password.optional(),
    role: role.optional().openapi({ description: 'Role in the organization; your own role is ignored' }),
    current_password: z
      .string()
      .max(1024, 'must have at most 1024 characters')
      .optional()
      .openapi({ format: 'password', description: 'Required to change your own email or password' }),
  })
  .refine(someFields, noFields)
  .superRefine(refineSignIn)
  .openapi('PutUser');

export function toAnswer(user: User): z.infer<typeof userSchema> {
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
