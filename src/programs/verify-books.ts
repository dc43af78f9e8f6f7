import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { formatId, isUuid, parseId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import { organizationIdsSql, projectOwnersSql } from '#core/accounts/accounts.ts';
import { keyOwnersSql } from '#core/keys/keys.ts';
import { type BooksFinding, type BooksProof, verifyBooks } from '#core/metering/metering.ts';
import { type Command, type CommandContext, exitCodes, textFlag, UsageError } from '#edge/cli/cli.ts';
import { withBooksDatabase } from './books-database.ts';

const ids = { organizations: organizationIdsSql, keys: keyOwnersSql, projects: projectOwnersSql };

/** `headgate verify-books`: proves the books in the database itself, without a gateway. */
export const verifyBooksCommand: Command = {
  name: 'verify-books',
  usage: '[--organization ID] [--heads] [--expect HEADS.json]',
  summary:
    'Prove ledgers, sums and balances: in the database of DATABASE_URL, or of HEADGATE_DATA_DIR. --heads prints what ' +
    'they come to, to be kept elsewhere; --expect compares with that: only so a whole history that was exchanged shows.',
  words: { min: 0, max: 0 },
  options: {
    organization: { type: 'string', about: 'of one alone: org_…' },
    heads: { type: 'boolean', about: 'print what the ledgers come to, as JSON' },
    expect: { type: 'string', about: 'a file of --heads, from which they must go on' },
  },
  async run(context) {
    const organizationId = readOrganization(context);
    const known = readKnown(textFlag(context, 'expect'));
    const only = organizationId === null ? {} : { organizationId };
    const proof = await withBooksDatabase({ whileRunning: true }, ({ db }) => verifyBooks(db, { ...only, known, ids }));
    if (organizationId !== null && proof.ledgers.length === 0 && proof.findingsTotal === 0) {
      throw new UsageError(`--organization ${formatId('org', organizationId)}: there are no books of it`);
    }
    const isHeads = context.flags['heads'] === true;
    context.out(isHeads ? headsText(proof) : context.json ? jsonText(proof) : proofText(proof));
    if (isHeads && proof.findingsTotal > 0) context.err(`headgate: the books were altered\n${findingLines(proof)}`);
    return proof.findingsTotal === 0 ? exitCodes.ok : exitCodes.failed;
  },
};

function readOrganization(context: CommandContext): string | null {
  const text = textFlag(context, 'organization');
  if (text === null) return null;
  const id = isUuid(text) ? text : parseId('org', text);
  if (id === null)
    throw new UsageError(`--organization ${text}: must be an id such as org_019ab1c2d3e47f008a1b2c3d4e5f6071`);
  return id;
}

const headsSchema = z.object({
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

function readKnown(path: string | null) {
  if (path === null) return new Map<string, never>();
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
      `--expect ${path}: is not what "headgate verify-books --heads" prints (${z.prettifyError(parsed.error)})`,
    );
  }
  return new Map(
    parsed.data.heads.map(({ organization, entries, head }) => [
      organization,
      { entries, head: Buffer.from(head, 'hex') },
    ]),
  );
}

function headsText({ ledgers }: BooksProof): string {
  const heads = ledgers.map(({ organizationId, entries, head }) => ({
    organization: formatId('org', organizationId),
    entries,
    head: head.toString('hex'),
  }));
  return `${JSON.stringify({ object: 'ledger_heads', heads }, null, 2)}\n`;
}

const prefixes: Partial<Readonly<Record<BooksFinding['kind'], Parameters<typeof formatId>[0]>>> = {
  hour_differs: 'key',
  day_differs: 'key',
  key_differs: 'key',
  project_differs: 'proj',
};

/** Of these the id is a request's, which is shown as it is. */
const ofRequests: ReadonlySet<BooksFinding['kind']> = new Set([
  'record_without_entry',
  'price_differs',
  'unknown_code',
]);

/** What an id of a finding is one of. */
const shownId = ({ kind, id }: BooksFinding): string | null =>
  id === null || ofRequests.has(kind) ? id : formatId(prefixes[kind] ?? 'le', id);

function jsonText(proof: BooksProof): string {
  const body = {
    object: 'books_proof',
    holds: proof.findingsTotal === 0,
    entries: proof.entries,
    entries_before_retention: proof.entriesBeforeRetention,
    organizations: proof.ledgers.map(({ organizationId, entries, balancePicoUsd, head }) => ({
      id: formatId('org', organizationId),
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
  };
  return `${JSON.stringify(body, null, 2)}\n`;
}

const meanings: Readonly<Record<BooksFinding['kind'], string>> = {
  entry: 'this entry is not what was booked',
  wallet: 'the wallet is not what the ledger comes to',
  ledger_differs: 'the ledger does not go on from what was expected',
  entry_without_records: 'requests of this entry are gone',
  entry_differs: 'this entry and its requests do not agree',
  record_without_entry: 'this request was charged, but the ledger does not know of it',
  hour_differs: 'the sum of an hour of this key is not that of its requests',
  day_differs: 'the sum of a day of this key is not that of its hours',
  price_differs: 'this request does not cost its tokens at its price',
  unknown_code: 'what a number stands for, under which usage is kept, is gone',
  key_differs: 'usage is kept under this key, which is none of the organization',
  project_differs: 'usage is kept under this project, which is none of the organization',
  charges_differ: 'the sums of usage do not come to what the ledger charged',
};

function findingLines({ findings }: Pick<BooksProof, 'findings'>): string {
  return findings
    .map((finding) => {
      const words = [shownId(finding), meanings[finding.kind]].filter((word) => word !== null).join(': ');
      return `  ${words}${finding.problem === null ? '' : ` (${finding.problem})`}\n`;
    })
    .join('');
}

function proofText(proof: BooksProof): string {
  const findings = Map.groupBy(proof.findings, ({ organizationId }) => organizationId);
  const named = new Set(proof.ledgers.map(({ organizationId }) => organizationId));
  const lines = proof.ledgers.map(({ organizationId, entries, balancePicoUsd }) => {
    const own = findings.get(organizationId) ?? [];
    const sums = `${entries} entries, balance ${formatUsd(balancePicoUsd)} USD`;
    const verdict = own.length === 0 ? 'holds' : 'ALTERED';
    return `${formatId('org', organizationId)}  ${verdict}  ${sums}\n${findingLines({ findings: own })}`;
  });
  // Requests of an organization that has no wallet.
  const others = [...findings].filter(([organizationId]) => !named.has(organizationId));
  const strangers = others.map(
    ([organizationId, own]) => `${formatId('org', organizationId)}  ALTERED\n${findingLines({ findings: own })}`,
  );
  const before =
    proof.entriesBeforeRetention === 0
      ? ''
      : `, of ${proof.entriesBeforeRetention} only the sums: their requests are no longer kept`;
  const shown = proof.findingsTotal > proof.findings.length ? `, the first ${proof.findings.length} are shown` : '';
  const result = proof.findingsTotal === 0 ? 'all hold' : `${proof.findingsTotal} findings${shown}`;
  const summary = `${proof.organizations} organizations, ${proof.entries} entries${before}: ${result}\n`;
  return [...lines, ...strangers, summary].join('');
}
