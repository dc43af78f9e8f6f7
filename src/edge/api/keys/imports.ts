import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { MICRO_DIGITS } from '#base/money.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Catalog } from '#core/catalog/catalog.ts';
import type { ImportedBudget, ImportResult, Imports, KeyToImport } from '#core/imports/imports.ts';
import {
  amountText,
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  organizationQuery,
} from '#edge/api/shared/shared.ts';
import { budgetSchema } from '#edge/contract/budgets.ts';
import { nameText, unixSeconds } from '#edge/contract/fields.ts';
import { type ImportAnswer, importSchema, keySchema, limitFields } from '#edge/contract/keys.ts';
import { authorOf } from '#edge/http/http.ts';

/** Imports projects and keys of other programs, for platform administrators. */

export interface ImportRoutesParts {
  readonly guards: Guards;
  readonly imports: Imports;
  readonly accounts: Pick<Accounts, 'readOrganization'>;
  readonly catalog: Pick<Catalog, 'find'>;
}

/** Keys per request: one transaction creates all of them, and a body has at most 1,000 fields. */
const keysMax = 50;
const budgetsMax = 5;
/** End of the year 9999, in seconds since the Unix epoch. */
const expiresAtMax = 253_402_300_799;

const budgets = z
  .array(
    z.strictObject({
      period: budgetSchema.shape.period,
      amount: amountText({
        isSigned: false,
        places: MICRO_DIGITS,
        example: '25',
        description: 'USD per period, a decimal with at most 6 places',
      }),
      opening_spent: amountText({
        isSigned: false,
        example: '12.5',
        description: 'USD spent before the import; counts against the budget in the period of the import',
      }).optional(),
    }),
  )
  .max(budgetsMax, `must have at most ${budgetsMax} budgets`)
  .default([])
  .openapi({ description: 'Hard budgets' });

const keySource = z.strictObject({
  secret_sha256: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 in lowercase hexadecimal')
    .openapi({ description: 'SHA-256 of the secret, in hexadecimal' }),
  prefix: nameText(64).openapi({ description: 'Shown start of the secret' }),
  last4: z
    .string()
    .regex(/^[!-~]{0,4}$/, 'must have at most 4 printable ASCII characters')
    .openapi({ description: 'Shown last 4 characters of the secret; empty if they are unknown' }),
  name: nameText(),
  expires_at: unixSeconds.min(0).max(expiresAtMax).nullable().default(null),
  ...z.strictObject(limitFields).partial().shape,
  models: keySchema.shape.models.default(null),
  budgets,
});

const createSchema = z
  .strictObject({
    ...organizationQuery,
    dry_run: z.boolean().default(false).openapi({ description: 'true checks everything, and stores nothing' }),
    project: z.strictObject({
      imported_from: nameText(300).openapi({
        description: 'Name of the group in the other program: a later import finds the project by it',
        example: 'litellm team 7f3b',
      }),
      name: nameText(100),
      budgets,
    }),
    keys: z.array(keySource).max(keysMax, `must have at most ${keysMax} keys`).default([]),
  })
  .openapi('CreateImport', { description: 'A project and keys of the project. Absent limits are unlimited' });

type KeySource = z.infer<typeof keySource>;

function budgetsOf(all: KeySource['budgets']): ImportedBudget[] {
  return all.map(({ period, amount, opening_spent: spent }) => ({
    period,
    amountPicoUsd: amount,
    openingPicoUsd: spent ?? 0n,
  }));
}

function keyOf(key: KeySource, models: readonly string[] | null): KeyToImport {
  return {
    secret: { secretHash: Buffer.from(key.secret_sha256, 'hex'), prefix: key.prefix, last4: key.last4 },
    name: key.name,
    expiresAtMs: key.expires_at === null ? null : key.expires_at * 1000,
    limits: {
      requestsPerMinute: key.requests_per_minute,
      maxConcurrency: key.max_concurrency,
      tokensPerMinute: key.tokens_per_minute,
      monthlyTokenLimit: key.monthly_token_limit,
    },
    models,
    budgets: budgetsOf(key.budgets),
  };
}

/** Divides names into ids of models that the organization may use, and unknown names. */
function divideModels(catalog: Pick<Catalog, 'find'>, names: readonly string[], within: readonly string[] | null) {
  const found = names.map((name) => ({ name, id: catalog.find(name)?.id ?? null }));
  const isKnown = (id: string | null): id is string => id !== null && (within?.includes(id) ?? true);
  return {
    ids: [...new Set(found.map(({ id }) => id).filter(isKnown))],
    unknown: found.filter(({ id }) => !isKnown(id)).map(({ name }) => name),
  };
}

const toResult = (prefix: 'proj' | 'key', { status, id, message }: ImportResult) => ({
  status,
  id: id === null ? null : formatId(prefix, id),
  message,
});

const noModel: ImportResult = {
  status: 'conflict',
  id: null,
  message: 'None of its models exists here. Add their engine files, then import again.',
};

/** Registers the import of projects and keys of other programs. */
export function registerImportRoute(app: ApiApp, { guards, imports, accounts, catalog }: ImportRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path: '/v1/imports',
    security: bearerSecurity,
    middleware: [guards.may('organizations'), guards.jsonBody],
    request: { query: z.strictObject(organizationQuery), body: jsonRequest(createSchema) },
    responses: { 200: jsonAnswer(importSchema, 'The result for the project and each key') },
  });
  app.openapi(route, async (context) => {
    const { dry_run: dryRun, project, keys, organization_id: named } = context.req.valid('json');
    const organizationId = await guards.organizationOf(context, named);
    const within = (await accounts.readOrganization(organizationId))?.models ?? null;
    const sources = keys.map((key) => {
      const models = key.models === null ? null : divideModels(catalog, key.models, within);
      return { key, ids: models?.ids ?? null, unknown: models?.unknown ?? [] };
    });
    // A key whose models all are unknown is left out: an empty list would be no model, and null would be all.
    const usable = sources.filter(({ ids }) => ids === null || ids.length > 0);
    const results = await imports.run(
      { organizationId, importedFrom: project.imported_from, name: project.name, budgets: budgetsOf(project.budgets) },
      usable.map(({ key, ids }) => keyOf(key, ids)),
      { author: authorOf(context), dryRun },
    );
    const answers = sources.map((source): ImportAnswer['keys'][number] => {
      const result = results.keys[usable.indexOf(source)] ?? noModel;
      const { secret_sha256: hash } = source.key;
      return { secret_sha256: hash, ...toResult('key', result), unknown_models: source.unknown };
    });
    const answer = { object: 'import' as const, dry_run: dryRun, project: toResult('proj', results.project) };
    return context.json({ ...answer, keys: answers }, 200);
  });
}
