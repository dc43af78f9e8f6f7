import { sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Accounts, Project } from '#core/accounts/accounts.ts';
import type { Author } from '#core/audit/audit.ts';
import type { BudgetPeriod, Budgets } from '#core/budgets/budgets.ts';
import {
  defaultKeyToggles,
  type ForeignSecret,
  type ImportedKey,
  type Keys,
  type NewKeyFields,
} from '#core/keys/keys.ts';

/** Takes projects and keys of another program over, with their budgets. Existing projects and keys stay as they are. */

/** A budget, with what was spent of it in the current period before the import. */
export interface ImportedBudget {
  readonly period: BudgetPeriod;
  readonly amountPicoUsd: bigint;
  readonly openingPicoUsd: bigint;
}

export interface ProjectToImport {
  readonly organizationId: string;
  /** Group of the other program, such as `litellm team 7`: a second import finds the project by it. */
  readonly importedFrom: string;
  readonly name: string;
  readonly budgets: readonly ImportedBudget[];
}

export interface KeyToImport extends Pick<NewKeyFields, 'name' | 'limits' | 'models'> {
  readonly secret: ForeignSecret;
  /** Milliseconds since the Unix epoch; null for a key that does not expire. */
  readonly expiresAtMs: number | null;
  readonly budgets: readonly ImportedBudget[];
}

/** Result for one project or key. */
export type ImportResult =
  | { readonly status: 'created' | 'exists'; readonly id: string; readonly message: null }
  /** Nothing was created, for the reason in the message. */
  | { readonly status: 'conflict'; readonly id: null; readonly message: string };

export interface ImportResults {
  readonly project: ImportResult;
  /** In the order of the keys. */
  readonly keys: readonly ImportResult[];
}

export interface Imports {
  /**
   * Imports a project and some of its keys in one transaction; a key that cannot be created prevents no other.
   * Keys belong to a service account of the project, and count for no quota when they are imported.
   * @param dryRun true does everything, and rolls it back
   */
  run(
    project: ProjectToImport,
    keys: readonly KeyToImport[],
    options: { readonly author: Author; readonly dryRun: boolean },
  ): Promise<ImportResults>;
}

export interface ImportsOptions {
  readonly db: Db;
  readonly accounts: Pick<
    Accounts,
    'createProjectIn' | 'findImportedProjectIn' | 'lockOrganization' | 'serviceAccounts'
  >;
  readonly keys: Pick<Keys, 'importHashIn'>;
  readonly budgets: Pick<Budgets, 'createIn' | 'changed'>;
}

/** Name of the service account that imported keys of a project belong to. */
const accountName = 'Imported keys';
/** Percentages of the amount that trigger an alert, as for budgets created without any. */
const alertPercents = [80, 100];

/** Rolls a dry run back. */
class DryRunDone extends Error {
  readonly results: ImportResults;

  constructor(results: ImportResults) {
    super('dry run');
    this.results = results;
  }
}

const conflict = (message: string): ImportResult => ({ status: 'conflict', id: null, message });

export function createImports(options: ImportsOptions): Imports {
  const { db, budgets } = options;
  return {
    async run(project, keys, { author, dryRun }) {
      const made: ImportedKey[] = [];
      try {
        const results = await db.orm.transaction(async (tx) => {
          const done = await importAll(options, { tx, author, made }, project, keys);
          if (dryRun) throw new DryRunDone(done);
          return done;
        });
        await budgets.changed();
        for (const { notify } of made) await notify();
        return results;
      } catch (error) {
        if (error instanceof DryRunDone) return error.results;
        throw error;
      }
    },
  };
}

interface Run {
  readonly tx: Transaction;
  readonly author: Author;
  /** Keys whose creation must be notified. */
  readonly made: ImportedKey[];
}

async function importAll(
  options: ImportsOptions,
  run: Run,
  input: ProjectToImport,
  keys: readonly KeyToImport[],
): Promise<ImportResults> {
  // One import at a time: those of two organizations may have the same secrets.
  await run.tx.execute(sql`select pg_advisory_xact_lock(hashtextextended('imports', 0))`);
  // Locked before anything is read, as by every creation of keys and service accounts.
  await options.accounts.lockOrganization(run.tx, input.organizationId);
  const project = await orConflict(() => run.tx.transaction((tx) => importProject(options, { ...run, tx }, input)));
  if ('message' in project) return { project, keys: keys.map(() => conflict('Its project was not imported.')) };
  const results: ImportResult[] = [];
  for (const key of keys) {
    const made = await orConflict(() =>
      run.tx.transaction((tx) => importKey(options, { ...run, tx }, project.found, key)),
    );
    if ('key' in made) run.made.push(made);
    results.push('key' in made ? { status: made.isNew ? 'created' : 'exists', id: made.key.id, message: null } : made);
  }
  const status = project.isNew ? 'created' : 'exists';
  return { project: { status, id: project.found.id, message: null }, keys: results };
}

/** Turns a rejection into a result; the savepoint of the change was rolled back. */
async function orConflict<T>(change: () => Promise<T>): Promise<T | (ImportResult & { readonly status: 'conflict' })> {
  try {
    return await change();
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'conflict') throw error;
    return { status: 'conflict', id: null, message: error.message };
  }
}

async function importProject(
  options: ImportsOptions,
  { tx, author }: Run,
  { organizationId, importedFrom, name, budgets }: ProjectToImport,
): Promise<{ readonly found: Project; readonly isNew: boolean }> {
  const { accounts } = options;
  const found = await accounts.findImportedProjectIn(tx, organizationId, importedFrom);
  if (found !== null) return { found, isNew: false };
  const project = { organizationId, importedFrom, name, description: '', visibility: 'private' as const };
  const made = await accounts.createProjectIn(tx, project, author);
  const scope = { type: 'project', id: made.id } as const;
  for (const budget of budgets) await importBudget(options, { tx, author }, { organizationId, scope, budget });
  return { found: made, isNew: true };
}

async function importKey(
  options: ImportsOptions,
  { tx, author }: Run,
  { id: projectId, organizationId }: Project,
  { secret, expiresAtMs, budgets, ...fields }: KeyToImport,
): Promise<ImportedKey> {
  const serviceAccountId = await accountOf(options, { tx, author }, { organizationId, projectId });
  const owner = { organizationId, projectId, userId: null, serviceAccountId };
  const expires = expiresAtMs === null ? null : { atMs: expiresAtMs };
  const input = { ...fields, ...owner, expires, scope: 'inference' as const, toggles: defaultKeyToggles };
  const made = await options.keys.importHashIn(tx, secret, input, author);
  if (!made.isNew) return elsewhere(made, organizationId);
  const scope = { type: 'api_key', id: made.key.id } as const;
  for (const budget of budgets) await importBudget(options, { tx, author }, { organizationId, scope, budget });
  return made;
}

/** @throws AppError conflict for a key of another organization, whose id stays hidden */
function elsewhere(made: ImportedKey, organizationId: string): ImportedKey {
  if (made.key.organizationId === organizationId) return made;
  throw new AppError('conflict', { message: 'Another organization has a key with this secret.' });
}

/** Returns the service account of imported keys, and creates it if needed. */
async function accountOf(
  { accounts: { serviceAccounts } }: ImportsOptions,
  { tx, author }: Pick<Run, 'tx' | 'author'>,
  place: { readonly organizationId: string; readonly projectId: string },
): Promise<string> {
  const found = await serviceAccounts.findNamedIn(tx, { ...place, name: accountName });
  const account = found ?? (await serviceAccounts.createIn(tx, { ...place, name: accountName }, author));
  if (account === null) throw new Error('a locked project disappeared');
  return account.id;
}

interface BudgetToImport {
  readonly organizationId: string;
  readonly scope: { readonly type: 'project' | 'api_key'; readonly id: string };
  readonly budget: ImportedBudget;
}

async function importBudget(
  { budgets }: ImportsOptions,
  { tx, author }: Pick<Run, 'tx' | 'author'>,
  { organizationId, scope, budget: amounts }: BudgetToImport,
): Promise<void> {
  const budget = { ...amounts, organizationId, scope, mode: 'hard' as const, models: null, alertPercents };
  await budgets.createIn(tx, budget, author);
}
