import type { AuditEntryAnswer } from '#edge/contract/audit.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import { actorNames, actorOf, strangerNames } from '#edge/portal/frame/frame.ts';
import { type MaybeHtml, pathWith, type Visit } from '#edge/portal/ui/ui.ts';

/** A credit or an adjustment. */
interface Booked {
  readonly id: string;
  readonly created_at: number;
}

/**
 * Finds in the audit log who posted credits and adjustments.
 * @param organizationId whose wallet it is
 * @returns names by id of the entry; null if the visitor may not read the audit log
 */
export async function readBookers(
  visit: Visit,
  entries: readonly Booked[],
  organizationId: string,
): Promise<ReadonlyMap<string, MaybeHtml> | null> {
  if (!visit.may('audit.read')) return null;
  if (entries.length === 0) return new Map();
  const times = entries.map(({ created_at: time }) => time);
  const timeOf = (seconds: number): string => new Date(seconds * 1000).toISOString();
  const asked = {
    organization_id: organizationId,
    target_id: organizationId,
    // The log takes its time from the clock a moment after the entry does.
    from: timeOf(Math.min(...times) - 1),
    to: timeOf(Math.max(...times) + 60),
    limit: 100,
  };
  const found = await Promise.all(
    ['wallet.credited', 'wallet.adjusted'].map((action) =>
      visit.get<ListAnswer<AuditEntryAnswer>>(pathWith('/v1/audit', { ...asked, action })),
    ),
  );
  const logged = found.flatMap(({ data }) => data);
  const known = await actorNames(visit, organizationId);
  const names = new Map([...known, ...(await strangerNames(visit, logged, known))]);
  return new Map(logged.map((entry) => [String(entry.after?.['ledger_entry']), actorOf(entry, names)]));
}
