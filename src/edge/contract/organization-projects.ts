import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { cursorPageOf } from './lists.ts';

/** Projects in the form of OpenAI's organization API. */

/** A project of an organization. */
export const organizationProjectSchema = z
  .object({
    object: z.literal('organization.project'),
    id: idText('proj'),
    name: z.string(),
    status: z.enum(['active', 'archived']),
    created_at: unixSeconds,
    archived_at: z.null().meta({ description: 'Always null; the audit log has the time' }),
  })
  .meta({ id: 'OrganizationProject' });

/** A page of projects. */
export const organizationProjectListSchema = cursorPageOf(organizationProjectSchema, 'OrganizationProjectList');

export type OrganizationProjectAnswer = z.infer<typeof organizationProjectSchema>;
