import type { Catalog } from '#core/catalog/catalog.ts';
import type { History, UsageSums } from '#core/metering/metering.ts';
import { ValidationError } from '#edge/http/http.ts';

/** Usage of models in a window, for margins and for tokens in cost exports. */

export interface ModelUsageParts {
  readonly history: Pick<History, 'summarize'>;
  readonly catalog: Pick<Catalog, 'bases'>;
}

/** [fromMs, toMs), milliseconds since the Unix epoch. */
export interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

const modelsMax = 10_000;

export interface ModelUsage {
  readonly model: string;
  /** The base that an adapter had; otherwise the model itself. */
  readonly base: string;
  readonly sums: UsageSums;
}

const hourMs = 3_600_000;

/**
 * Reads usage by model, without rejected requests, of one organization, or of all for null. Sums are hourly: in the hour in which an adapter changes its base,
 * its usage still counts for the former base.
 * @throws ValidationError
 */
export async function readUsage(
  { history, catalog }: ModelUsageParts,
  { fromMs, toMs }: Span,
  organizationId: string | null,
): Promise<ModelUsage[]> {
  const bases = catalog.bases();
  const hoursAfter = bases.moves({ fromMs, toMs }).map((atMs) => Math.ceil(atMs / hourMs) * hourMs);
  const starts = [...new Set([fromMs, ...hoursAfter.filter((atMs) => atMs > fromMs && atMs < toMs)])].toSorted(
    (a, b) => a - b,
  );
  const found: ModelUsage[] = [];
  for (const [place, startMs] of starts.entries()) {
    const sums = await readModelSums(history, { fromMs: startMs, toMs: starts[place + 1] ?? toMs }, organizationId);
    found.push(...[...sums].map(([model, one]) => ({ model, base: bases.at(model, startMs), sums: one })));
  }
  return found;
}

async function readModelSums(
  history: Pick<History, 'summarize'>,
  { fromMs, toMs }: Span,
  organizationId: string | null,
): Promise<Map<string, UsageSums>> {
  const everything = { organizationId, keyId: null, groupsMax: modelsMax };
  const summary = await history.summarize({ ...everything, fromMs, toMs, groupBy: ['model'] });
  if (summary.kind === 'too_many_groups') throw new Error(`more than ${modelsMax} models have usage`);
  if (summary.kind === 'before_retention') {
    const kept = new Date(summary.keptFromMs).toISOString();
    const message = `must be a whole UTC hour: before ${kept}, only hourly sums are kept`;
    throw new ValidationError([{ field: fromMs % 3_600_000 === 0 ? 'to' : 'from', message }]);
  }
  const used = summary.rows.filter(({ requests }) => requests > 0);
  return new Map(used.map(({ group, ...sums }) => [String(group.model), sums]));
}
