import { created, cursorList, exampleId, requestId } from './examples.ts';
import type { Tag } from './operation.ts';

export const audit: Tag = {
  name: 'Audit log',
  description: 'Who changed what, and when.',
  operations: {
    'GET /v1/audit': {
      operationId: 'listAuditEntries',
      summary: 'List audit log entries',
      description:
        'Returns changes in the organization, newest first, with the state before and after; secrets are never recorded. ' +
        'Requires a management key. Platform administrators read all organizations with `all_organizations=true`.',
      answer: cursorList({
        id: requestId,
        object: 'audit.entry',
        created_at: created,
        organization_id: exampleId('org'),
        action: 'api_key.revoked',
        target_type: 'api_key',
        target_id: exampleId('key'),
        actor: {
          type: 'user',
          id: exampleId('user'),
          user_id: exampleId('user'),
          service_account_id: null,
        },
        before: { status: 'active' },
        after: { status: 'revoked' },
        request_id: requestId,
      }),
    },
  },
};
