import { exampleId, isoTime, laterIsoTime, numberedPage } from './examples.ts';
import { atBothPrefixes, type Tag } from './operation.ts';

const email = 'ada@example.com';
const user = {
  id: exampleId('user'),
  name: 'Ada Lovelace',
  email,
  platform_role: 'user',
  memberships: [{ organization_id: exampleId('org'), role: 'member' }],
  created_at: isoTime,
};
const identity = { issuer: 'https://id.example.com', subject: '248289761001', linked_at: isoTime };

const who = 'Requires a management key of the organization.';
const sees =
  'An inference key sees only its own user, a management key those of its organization, and a platform administrator all.';

export const users: Tag = {
  name: 'Users',
  description: 'People and their roles in organizations. Times are ISO 8601.',
  operations: {
    ...atBothPrefixes({
      'GET /users': {
        operationId: 'listUsers',
        summary: 'List users',
        description: `Returns a page of users. ${sees}`,
        answer: numberedPage(user),
      },
      'POST /users': {
        operationId: 'createUser',
        summary: 'Create a user',
        description:
          'Creates a user as a member of the organization; only owners and platform administrators create ' +
          `owners. Returns 409 if the email address has an account. ${who}`,
        request: { name: user.name, email, password: 'correct-horse-battery-staple', role: 'member' },
        answer: user,
      },
      'GET /users/{id}': {
        operationId: 'retrieveUser',
        summary: 'Retrieve a user',
        description: `Returns one user. ${sees}`,
        answer: user,
      },
      'PUT /users/{id}': {
        operationId: 'updateUser',
        summary: 'Update a user',
        description:
          'Changes the fields that are sent, and ignores unknown and read-only fields. Inference keys change only ' +
          'their own user; changing your own email or password requires `current_password`. Returns 409 if the last ' +
          'administrator of an organization would lose the role.',
        request: { name: 'Ada King' },
        answer: { ...user, name: 'Ada King' },
      },
      'DELETE /users/{id}': {
        operationId: 'deleteUser',
        summary: 'Remove a user from the organization',
        description:
          'Removes the user from the organization, and deletes the account if it belongs to no other. Platform ' +
          'administrators without `organization_id` remove the user from all organizations. Keys of the user there ' +
          'fail on their next request; usage, ledger and audit log stay. Requires a management key; returns 409 for ' +
          'the last administrator.',
      },
      'POST /users/{id}/reset-link': {
        operationId: 'createUserResetLink',
        summary: 'Create a password reset link',
        description:
          'Creates a link to set a new password, valid once and for one hour. It is sent by email if `HEADGATE_SMTP_URL` ' +
          `is set, else returned in \`link\`. ${who}`,
        answer: {
          email,
          link: 'https://gateway.example.com/portal/reset#3f9c2b7e',
          expires_at: laterIsoTime,
        },
      },
    }),
    'GET /v1/users/{id}/identities': {
      operationId: 'listUserIdentities',
      summary: 'List single sign-on identities of a user',
      description: `Returns the OpenID Connect identities that sign in as this user, oldest first. ${sees}`,
      answer: { data: [identity] },
    },
    'DELETE /v1/users/{id}/identities': {
      operationId: 'deleteUserIdentity',
      summary: 'Unlink a single sign-on identity',
      description:
        'Unlinks an identity, which can no longer sign in as this user; open sessions continue. An identity with the ' +
        'email address of the account is linked again when it signs in. Inference keys change only their own user.',
    },
  },
};
