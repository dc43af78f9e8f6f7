import { created, cursorList, exampleId } from './examples.ts';
import type { Tag } from './operation.ts';

const invitation = {
  id: exampleId('inv'),
  organization_id: exampleId('org'),
  email: 'ada@example.com',
  role: 'member',
  invited_by: exampleId('user'),
  created_at: created,
  expires_at: created + 604_800,
};

const who = 'Requires a management key of the organization.';

export const invitations: Tag = {
  name: 'Invitations',
  description: 'Pending invitations to an organization.',
  operations: {
    'GET /v1/invitations': {
      operationId: 'listInvitations',
      summary: 'List pending invitations',
      description: `Returns the pending invitations of the organization, newest first, without their links. ${who}`,
      answer: cursorList(invitation),
    },
    'POST /v1/invitations': {
      operationId: 'createInvitation',
      summary: 'Invite a person to the organization',
      description:
        'Creates an invitation that is valid for one week and replaces a pending one for the same address. The link is ' +
        `sent by email if \`HEADGATE_SMTP_URL\` is set, else returned in \`link\`. ${who}`,
      request: { email: invitation.email, role: 'member' },
      answer: { ...invitation, link: 'https://gateway.example.com/portal/invitation#3f9c2b7e' },
    },
    'DELETE /v1/invitations/{id}': {
      operationId: 'deleteInvitation',
      summary: 'Revoke an invitation',
      description: `Revokes an invitation, whose link no longer works. Only owners and platform administrators revoke invitations of owners. ${who}`,
      answer: invitation,
    },
  },
};
