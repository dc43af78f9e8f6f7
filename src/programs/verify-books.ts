import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { formatId, isUuid, parseId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import { organizationIdsSql, projectOwnersSql } from '#core/accounts/accounts.ts';
import { type HistoryChange, readHistoryChanges } from '#core/gateways/gateways.ts';
import { keyOwnersSql } from '#core/keys/keys.ts';
import { type BooksFinding, type BooksProof, verifyBooks } from '#core/metering/metering.ts';
import type { KnownHead } from '#core/wallet/wallet.ts';
import { type CommandContext, exitCodes, textFlag, UsageError } from '#edge/cli/cli.ts';
import { withGatewayDatabase } from './books-database.ts';

const ids = { organizations: organizationIdsSql, keys: keyOwnersSql, projects: projectOwnersSql };

/** Runs `headgate verify-books`: proves the books in the database itself, without a gateway. */
export async function runVerifyBooks(context: CommandContext): Promise<number> {
  const organizationId = readOrganization(context);
  const known = readKnown(textFlag(context, 'expect'));
  const only = organizationId === null ? {} : { organizationId };
  const read = { ...only, known: known.heads, ids };
  const { proof, changes } = await withGatewayDatabase({ whileRunning: true }, async ({ db }) => ({
    proof: await verifyBooks(db, read),
    changes: known.takenMs === null ? [] : await readHistoryChanges(db.sql, known.takenMs),
  }));
  if (organizationId !== null && proof.ledgers.length === 0 && proof.findingsTotal === 0) {
    throw new UsageError(`--organization ${formatId('org', organizationId)}: it has no books`);
  }
  const proven = { ...proof, changes };
  const verdict = verdictOf(proven);
  const isHeads = context.flags['heads'] === true;
  context.out(isHeads ? headsText(proof) : context.json ? jsonText(proven) : proofText(proven));
  if (isHeads && verdict !== 'valid') context.err(`headgate: ${headsProblems[verdict]}\n${findingLines(proof)}`);
  return codes[verdict];
}

/**
 * Result of a proof. `differs`: ledgers do not continue the expected heads, nothing else is wrong, and a recorded
 * change of PostgreSQL's history may have lost the entries of these heads.
 */
type Verdict = 'valid' | 'differs' | 'altered';

const codes: Readonly<Record<Verdict, number>> = { valid: exitCodes.ok, differs: 3, altered: exitCodes.failed };

const headsProblems: Readonly<Record<Exclude<Verdict, 'valid'>, string>> = {
  differs: 'the ledgers do not continue from the expected heads; PostgreSQL may have lost the commits in between',
  altered: 'the books were altered',
};

/** A proof, with the changes of PostgreSQL's history that may have lost entries of the expected heads. */
interface Proven extends BooksProof {
  readonly changes: readonly HistoryChange[];
}

function verdictOf({ findingsTotal, differingTotal, changes }: Proven): Verdict {
  if (findingsTotal === 0) return 'valid';
  return findingsTotal === differingTotal && changes.length > 0 ? 'differs' : 'altered';
}

/** Returns the verdict on one organization, from its findings that are shown. */
function verdictOn(proven: Proven, own: readonly BooksFinding[]): Verdict {
  if (own.length === 0) return 'valid';
  const areAllShown = proven.findings.length === proven.findingsTotal;
  const isHeadOnly = own.every(({ kind }) => kind === 'ledger_differs') && proven.changes.length > 0;
  return isHeadOnly && (areAllShown || verdictOf(proven) === 'differs') ? 'differs' : 'altered';
}

function readOrganization(context: CommandContext): string | null {
  const text = textFlag(context, 'organization');
  if (text === null) return null;
  const id = isUuid(text) ? text : parseId('org', text);
  if (id === null)
    throw new UsageError(`--organization ${text}: must be an id such as org_019ab1c2d3e47f008a1b2c3d4e5f6071`);
  return id;
}

const headsSchema = z.object({
  /** Absent from files of earlier versions. */
  taken_at: z.iso.datetime().optional(),
  heads: z.array(
    z.object({
      organization: z.string().transform((text, context) => {
        const id = parseId('org', text);
        if (id === null) context.addIssue({ code: 'custom', message: 'is not the id of an organization' });
        return id ?? z.NEVER;
      }),
      entries: z.int().min(0),
      head: z.string().regex(/^[0-9a-f]{64}$/, 'is not a head'),
    }),
  ),
});

interface Known {
  readonly heads: ReadonlyMap<string, KnownHead>;
  /** Time of the heads; null if the file does not have it. */
  readonly takenMs: number | null;
}

function readKnown(path: string | null): Known {
  if (path === null) return { heads: new Map(), takenMs: null };
  let content: unknown;
  try {
    content = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new UsageError(
      `--expect ${path}: cannot be read (${error instanceof Error ? error.message : String(error)})`,
    );
  }
  const parsed = headsSchema.safeParse(content);
  if (!parsed.success) {
    throw new UsageError(
      `--expect ${path}: is not the output of "headgate verify-books --heads" (${z.prettifyError(parsed.error)})`,
    );
  }
  const { heads, taken_at: takenAt } = parsed.data;
  return {
    heads: new Map(
      heads.map(({ organization, entries, head }) => [organization, { entries, head: Buffer.from(head, 'hex') }]),
    ),
    takenMs: takenAt === undefined ? null : Date.parse(takenAt),
  };
}

function headsText({ ledgers, takenMs }: BooksProof): string {
  const heads = ledgers.map(({ organizationId, entries, head }) => ({
    organization: formatId('org', organizationId),
    entries,
    head: head.toString('hex'),
  }));
  return `${JSON.stringify({ object: 'ledger_heads', taken_at: isoOf(takenMs), heads }, null, 2)}\n`;
}

const isoOf = (momentMs: number): string => new Date(momentMs).toISOString();

const prefixes: Partial<Readonly<Record<BooksFinding['kind'], Parameters<typeof formatId>[0]>>> = {
  hour_differs: 'key',
  day_differs: 'key',
  key_differs: 'key',
  project_differs: 'proj',
};

/** Findings whose id is that of a request, which is shown unchanged. */
const ofRequests: ReadonlySet<BooksFinding['kind']> = new Set([
  'record_without_entry',
  'price_differs',
  'unknown_code',
]);

/** Returns the id of a finding in its public form; null if the finding has none. */
const shownId = ({ kind, id }: BooksFinding): string | null =>
  id === null || ofRequests.has(kind) ? id : formatId(prefixes[kind] ?? 'le', id);

function jsonText(proof: Proven): string {
  const findings = findingsByOrganization(proof);
  const body = {
    object: 'books_proof',
    valid: proof.findingsTotal === 0,
    verdict: verdictOf(proof),
    entries: proof.entries,
    entries_before_retention: proof.entriesBeforeRetention,
    organizations: proof.ledgers.map(({ organizationId, entries, balancePicoUsd, head }) => ({
      id: formatId('org', organizationId),
      verdict: verdictOn(proof, findings.get(organizationId) ?? []),
      entries,
      balance: formatUsd(balancePicoUsd),
      head: head.toString('hex'),
    })),
    findings: proof.findings.map((finding) => ({
      kind: finding.kind,
      organization: formatId('org', finding.organizationId),
      id: shownId(finding),
      problem: finding.problem,
    })),
    findings_total: proof.findingsTotal,
    history_changes: proof.changes.map(({ change, knownMs, noticedMs }) => ({
      change,
      known_at: Number.isFinite(knownMs) ? isoOf(knownMs) : null,
      noticed_at: isoOf(noticedMs),
    })),
  };
  return `${JSON.stringify(body, null, 2)}\n`;
}

const meanings: Readonly<Record<BooksFinding['kind'], string>> = {
  entry: 'this entry was changed after it was posted',
  wallet: 'the balance of the wallet is not the sum of the ledger',
  ledger_differs: 'the ledger does not continue from the expected head',
  entry_without_records: 'usage records of this ledger entry are missing',
  entry_differs: 'this ledger entry and its usage records differ',
  record_without_entry: 'this request was charged, but the ledger has no entry for it',
  hour_differs: 'the sum of an hour of this key differs from its requests',
  day_differs: 'the sum of a day of this key differs from its hours',
  price_differs: 'the cost of this request differs from its tokens at its price',
  unknown_code: 'usage refers by number to a model, key or other name that is missing in the database',
  key_differs: 'usage of the organization is stored under this key, which belongs to another organization',
  project_differs: 'usage of the organization is stored under this project, which belongs to another organization',
  charges_differ: 'the sums of usage differ from the charges in the ledger',
};

function findingLines({ findings }: Pick<BooksProof, 'findings'>): string {
  return findings
    .map((finding) => {
      const words = [shownId(finding), meanings[finding.kind]].filter((word) => word !== null).join(': ');
      return `  ${words}${finding.problem === null ? '' : ` (${finding.problem})`}\n`;
    })
    .join('');
}

const findingsByOrganization = ({ findings }: BooksProof): Map<string, BooksFinding[]> =>
  Map.groupBy(findings, ({ organizationId }) => organizationId);

const verdictTexts: Readonly<Record<Verdict, string>> = { valid: 'valid', differs: 'DIFFERS', altered: 'ALTERED' };

/** Empty unless the changes are a reason for the verdict. */
function changesText(proof: Proven): string {
  if (verdictOf(proof) === 'valid') return '';
  return proof.changes
    .map(
      ({ change, knownMs, noticedMs }) =>
        `PostgreSQL may have returned to an earlier state after the expected heads were taken (${change}, noticed ${isoOf(noticedMs)}); ` +
        `commits after ${Number.isFinite(knownMs) ? isoOf(knownMs) : 'an unknown time'} may be lost\n`,
    )
    .join('');
}

function proofText(proof: Proven): string {
  const findings = findingsByOrganization(proof);
  const named = new Set(proof.ledgers.map(({ organizationId }) => organizationId));
  const lines = proof.ledgers.map(({ organizationId, entries, balancePicoUsd }) => {
    const own = findings.get(organizationId) ?? [];
    const sums = `${entries} entries, balance ${formatUsd(balancePicoUsd)} USD`;
    const verdict = verdictTexts[verdictOn(proof, own)];
    return `${formatId('org', organizationId)}  ${verdict}  ${sums}\n${findingLines({ findings: own })}`;
  });
  // Findings in requests of organizations that have no wallet.
  const others = [...findings].filter(([organizationId]) => !named.has(organizationId));
  const strangers = others.map(
    ([organizationId, own]) => `${formatId('org', organizationId)}  ALTERED\n${findingLines({ findings: own })}`,
  );
  const before =
    proof.entriesBeforeRetention === 0
      ? ''
      : `, ${proof.entriesBeforeRetention} of them by their sums only: their requests were deleted by retention`;
  const shown = proof.findingsTotal > proof.findings.length ? `, the first ${proof.findings.length} shown` : '';
  const results: Readonly<Record<Verdict, string>> = {
    valid: 'all valid',
    differs: `${proof.differingTotal} differ from the expected heads${shown}, and nothing else was found`,
    altered: `${proof.findingsTotal} findings${shown}`,
  };
  const result = results[verdictOf(proof)];
  const summary = `${proof.organizations} organizations, ${proof.entries} entries${before}: ${result}\n`;
  return [...lines, ...strangers, changesText(proof), summary].join('');
}
