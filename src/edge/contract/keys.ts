import { z } from 'zod';
import { budgetSchema } from './budgets.ts';
import { idText, nameText, orNull, unixSeconds, unixSecondsOrNull } from './fields.ts';
import { listOf } from './lists.ts';

/** Answers of `/v1/keys`, `/v1/key` and `/v1/imports`. */

/** Largest value of PostgreSQL's integer. */
export const int4Max = 2_147_483_647;

/** Returns the schema of a limit; null is unlimited. */
export function limitField(max: number, description: string) {
  return z
    .int()
    .min(1, 'must be 1 or more; null is unlimited')
    .max(max, `must be at most ${max}`)
    .nullable()
    .meta({ description: `${description}; null is unlimited` });
}

/** Limits of a key, and default limits of an organization's new keys. */
export const limitFields = {
  requests_per_minute: limitField(int4Max, 'Requests per minute'),
  max_concurrency: limitField(int4Max, 'Number of concurrent requests'),
  tokens_per_minute: limitField(Number.MAX_SAFE_INTEGER, 'Tokens per minute, input and output together'),
  monthly_token_limit: limitField(
    Number.MAX_SAFE_INTEGER,
    'Tokens per calendar month in UTC, input and output together',
  ),
};

const modelsMax = 200;

/** Models that a key or an organization may use. */
export const modelList = z
  .array(nameText(512))
  .min(1, 'must contain a model; null is all')
  .max(modelsMax, `must have at most ${modelsMax} models`)
  .nullable();

const allowedModels = modelList.meta({
  description: 'Allowed models by id; null is all models of the organization',
});

/** The setting `confined`, in answers and in bodies. */
export const confinedField = z
  .boolean()
  .nullable()
  .meta({
    description:
      '`true`: the key works only in its own project. `X-Project-ID` of another project returns 403, and a management ' +
      'key acts as a member. `false`: it works in any project that its user sees. `null`: `X-Project-ID` of another ' +
      "project returns 403 while the key's project has a hard budget. Always `true` for a key of a service account",
  });

const scope = z
  .enum(['inference', 'management'])
  .meta({ description: '`inference`: calls models. `management`: also administers the organization' });
const storeRequests = z.boolean().meta({ description: 'Stores the bodies of requests and responses' });
const cacheResponses = z.boolean().meta({ description: 'Answers identical requests from the response cache' });

/** The setting `unserved_tools`, in answers and in bodies. */
const unservedToolsField = z
  .enum(['reject', 'drop'])
  .nullable()
  .meta({
    description:
      'Tools in requests that the engine of a model does not serve, such as `web_search`. `reject`: the request returns ' +
      '400. `drop`: they are left out and named in `x-headgate-dropped-tools`. `null`: as the engine file of the model says',
  });
const endUserFromHeader = z.boolean().meta({
  description:
    'Requests name their end user in the header that `HEADGATE_END_USER_HEADER` names, in place of `user` in the body',
});

const keyFields = {
  id: idText('key'),
  object: z.literal('api_key'),
  name: z.string(),
  prefix: z.string().meta({ example: 'sk-hg-8a1b2c3d4e5f', description: 'Start of every secret of this key' }),
  last4: z.string().meta({ example: 'x7Qd', description: 'Last 4 characters of the current secret' }),
  scope,
  held: z.boolean().meta({
    description:
      'true if the gateway itself uses the key for its user, as in the playground. Such a key has no known secret ' +
      'and does not count toward the limit of active keys',
  }),
  project_id: idText('proj'),
  user_id: idText('user')
    .nullable()
    .meta({ description: 'User that the key acts for; null for a key of a service account' }),
  service_account_id: idText('svc_acct').nullable().meta({ description: 'Service account that the key acts for' }),
  status: z.enum(['active', 'revoked', 'expired']),
  created_at: unixSeconds,
  expires_at: unixSecondsOrNull.meta({ description: 'Unix seconds; null if the key does not expire' }),
  last_used_at: unixSecondsOrNull.meta({ description: 'Unix seconds; null if the key was never used' }),
  revoked_at: unixSecondsOrNull.meta({ description: 'Unix seconds; null if the key is not revoked' }),
  rotated_at: unixSecondsOrNull.meta({
    description: 'When the current secret was created, in Unix seconds; null if it is the first one',
  }),
  former_secrets_end_at: unixSecondsOrNull.meta({
    description: 'When the last former secret stops working, in Unix seconds; null if none works',
  }),
  ...limitFields,
  store_requests: storeRequests,
  cache_responses: cacheResponses,
  unserved_tools: unservedToolsField,
  end_user_from_header: endUserFromHeader,
  confined: confinedField,
  models: allowedModels,
};

/** An API key, without its secret. */
export const keySchema = z.object(keyFields).meta({ id: 'ApiKey' });

/** An API key with its new secret. */
export const createdKeySchema = z
  .object({
    ...keyFields,
    secret: z.string().meta({ description: 'Secret, shown only once', example: 'sk-hg-8a1b2c3d4e5f-…' }),
  })
  .meta({ id: 'CreatedApiKey' });

/** Result of a report of a leaked secret. */
export const keyReportSchema = z
  .object({
    object: z.literal('key_report'),
    revoked: z.boolean().meta({ description: 'true if this report ended a working secret' }),
  })
  .meta({ id: 'ApiKeyReport' });

/** A page of API keys. */
export const keyListSchema = listOf(keySchema, 'KeyList');

/** Returns the schema of a limit with what remains of it; null is unlimited. */
function remainingOf(unit: string) {
  return orNull(
    z.object({
      limit: z.int().meta({ description: unit }),
      remaining: z.int().nullable().meta({ description: 'What is left of the limit now; null while it is unknown' }),
      resets_at: unixSecondsOrNull.meta({
        description:
          'Time when all of the limit is left again, in Unix seconds; null if only the end of requests frees it, and while it is unknown',
      }),
    }),
  ).meta({ description: `${unit}; null is unlimited` });
}

const spent = (when: string) =>
  z.number().meta({
    example: 0.00042,
    description: `USD charged for requests of the key ${when}, as the nearest JSON number; \`/v1/usage/summary\` has the exact amount`,
  });
const limitUsd = z.number().nullable();

/** An API key about itself. Fields that OpenRouter's answer has too have its names and, for USD, its type. */
export const ownKeySchema = z
  .object({
    data: z.object({
      id: keyFields.id,
      name: keyFields.name,
      label: z
        .string()
        .meta({ example: 'sk-hg-8a1b2c3d4e5f…x7Qd', description: "Start and end of the key's current secret" }),
      scope,
      is_management_key: z.boolean().meta({ description: 'True if the key may manage; false for a confined key' }),
      project_id: keyFields.project_id.meta({
        description: "The key's project, or the project that `X-Project-ID` names",
      }),
      user_id: keyFields.user_id,
      service_account_id: keyFields.service_account_id,
      models: z.array(z.string()).nullable().meta({
        description: 'Models by id that both the key and its organization allow; null is all models',
      }),
      limits: z.object({
        requests_per_minute: remainingOf('Requests per minute'),
        max_concurrency: remainingOf('Number of concurrent requests'),
        tokens_per_minute: remainingOf('Tokens per minute, input and output together'),
        monthly_token_limit: remainingOf('Tokens per calendar month in UTC, input and output together'),
      }),
      limit: limitUsd.meta({
        description:
          "USD of the key's own hard budget of all models, of several the one with the least left; null without one",
      }),
      limit_remaining: limitUsd.meta({ description: 'USD left of `limit`; null without a limit' }),
      limit_reset: budgetSchema.shape.period
        .nullable()
        .meta({ description: 'Period of `limit`; null without a limit' }),
      usage: spent('since its creation'),
      usage_daily: spent('in this UTC day'),
      usage_monthly: spent('in this UTC month'),
      budgets: z.array(budgetSchema).meta({ description: 'Budgets of the key and of its project, newest first' }),
      created_at: keyFields.created_at,
      expires_at: unixSecondsOrNull.meta({
        description: 'Time when the key ends, or the former secret that the request is sent with; null is never',
      }),
    }),
  })
  .meta({ id: 'OwnApiKey' });

export type KeyAnswer = z.infer<typeof keySchema>;
export type CreatedKeyAnswer = z.infer<typeof createdKeySchema>;
export type OwnKeyAnswer = z.infer<typeof ownKeySchema>;
export type LimitsAnswer = Pick<KeyAnswer, keyof typeof limitFields>;

const importStatus = z.enum(['created', 'exists', 'conflict']).meta({
  description: '`exists`: an earlier import created it, and nothing was changed. `conflict`: nothing was created',
});
const conflictMessage = z
  .string()
  .nullable()
  .meta({ type: ['string', 'null'], description: 'Reason of a conflict' });
const importedId = (prefix: 'proj' | 'key') => idText(prefix).nullable().meta({ description: 'null for a conflict' });

/** Results of an import, in the order of the request. */
export const importSchema = z
  .object({
    object: z.literal('import'),
    dry_run: z.boolean().meta({ description: 'true if nothing was stored; the ids then exist nowhere' }),
    project: z.object({ status: importStatus, id: importedId('proj'), message: conflictMessage }),
    keys: z.array(
      z.object({
        secret_sha256: z.string(),
        status: importStatus,
        id: importedId('key'),
        message: conflictMessage,
        unknown_models: z
          .array(z.string())
          .meta({ description: 'Models that do not exist here; the key was created without them' }),
      }),
    ),
  })
  .meta({ id: 'Import' });

export type ImportAnswer = z.infer<typeof importSchema>;
