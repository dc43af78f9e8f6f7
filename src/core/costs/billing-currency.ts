import { eq, sql } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { billingCurrencies } from './schema.ts';

/** The currency in which an organization sees its costs; null means the currencies of the rate cards. */
export interface BillingCurrencyChange {
  readonly organizationId: string;
  /** A code of the table of currencies. */
  readonly currency: string | null;
  readonly author: Author;
}

export async function readBillingCurrency(db: Db, organizationId: string): Promise<string | null> {
  const [row] = await db.orm
    .select({ currency: billingCurrencies.currency })
    .from(billingCurrencies)
    .where(eq(billingCurrencies.organizationId, organizationId));
  return row?.currency ?? null;
}

/** Changes the currency. An unchanged one is not written again, nor recorded in the audit log. */
export async function changeBillingCurrency(db: Db, audit: Audit, change: BillingCurrencyChange): Promise<void> {
  const { organizationId, currency, author } = change;
  const ofOrganization = eq(billingCurrencies.organizationId, organizationId);
  await db.orm.transaction(async (tx) => {
    // Serializes changes, also while there is no row, so that the recorded previous value is right.
    await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`headgate billing ${organizationId}`}, 0))`);
    const [row] = await tx.select().from(billingCurrencies).where(ofOrganization);
    const before = row?.currency ?? null;
    if (before === currency) return;
    if (currency === null) await tx.delete(billingCurrencies).where(ofOrganization);
    else {
      const values = { organizationId, currency, updatedAt: new Date() };
      await tx
        .insert(billingCurrencies)
        .values(values)
        .onConflictDoUpdate({ target: billingCurrencies.organizationId, set: values });
    }
    await audit.record(tx, {
      organizationId,
      author,
      action: 'organization.billing_currency_changed',
      targetType: 'organization',
      targetId: formatId('org', organizationId),
      before: { billing_currency: before },
      after: { billing_currency: currency },
    });
  });
}
