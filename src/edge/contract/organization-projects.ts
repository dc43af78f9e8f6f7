import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { int4Max, limitField } from './keys.ts';
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

/** Rate limits of a project per model, in the form of OpenAI's organization API. */

/** OpenAI's ids of rate limits also contain the name of the model. */
export const idPrefix = 'rl-';

/** Id of a rate limit. */
export const rateLimitId = z
  .string()
  .meta({ example: `${idPrefix}qwen3-32b`, description: `\`${idPrefix}\`, followed by the id of the model` });
/** Limits of a project for a model. */
export const rateLimitFields = {
  max_requests_per_1_minute: limitField(int4Max, 'Requests per minute'),
  max_tokens_per_1_minute: limitField(Number.MAX_SAFE_INTEGER, 'Tokens per minute, input and output together'),
  max_requests_per_1_day: limitField(int4Max, 'Requests per UTC day'),
};

/** The rate limits of a project for a model. */
export const rateLimitSchema = z
  .object({ object: z.literal('project.rate_limit'), id: rateLimitId, model: z.string(), ...rateLimitFields })
  .meta({ id: 'ProjectRateLimit', description: 'Rate limits of a project for a model; null is unlimited' });

export type RateLimitAnswer = z.infer<typeof rateLimitSchema>;

/** A page of rate limits. */
export const rateLimitListSchema = cursorPageOf(rateLimitSchema, 'ProjectRateLimitList');
