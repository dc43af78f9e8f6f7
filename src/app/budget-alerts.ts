import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { readAdminAddresses } from '#core/accounts/accounts.ts';
import { type BudgetAlert, type BudgetWatch, createBudgetWatch } from '#core/budgets/budgets.ts';
import type { Metering } from '#core/metering/metering.ts';
import type { Foundation } from './foundation.ts';
import type { Part } from './parts.ts';

export interface BudgetAlertsParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly foundation: Pick<Foundation, 'letters' | 'accounts'>;
  readonly metering: Metering;
}

const lookMs = 5000;
const forgetMs = 3_600_000;
/** Spending of end users is kept for longer than any period lasts. */
const usersKeptMs = 100 * 86_400_000;

/** Puts budgets and books side by side: who is told, and of what. */
export function createBudgetAlerts(parts: BudgetAlertsParts): { readonly watch: BudgetWatch; readonly part: Part } {
  const { metering, clock } = parts;
  const watch = createBudgetWatch({
    ...parts,
    spent: (organizationId, spendings) => metering.spending.spentOf(organizationId, spendings),
    users: (organizationId, span) => metering.spending.usersWith(organizationId, span),
    raise: (alert) => raiseAlert(parts, alert),
  });
  const forget = async (): Promise<void> => {
    await watch.forgetOld();
    await metering.spending.forgetUsers(clock.now() - usersKeptMs);
  };
  const part: Part = {
    name: 'alerts of budgets',
    jobs: [
      { name: 'tell of budgets', everyMs: lookMs, where: 'one', run: () => watch.look() },
      { name: 'forget what end users spent long ago', everyMs: forgetMs, where: 'one', run: forget },
    ],
  };
  return { watch, part };
}

/** By mail to owners and admins. @throws AppError mail_unavailable where the mail server took no letter */
async function raiseAlert({ db, foundation }: BudgetAlertsParts, { organizationId, data }: BudgetAlert): Promise<void> {
  const { accounts, letters } = foundation;
  const organization = await accounts.readOrganization(organizationId);
  if (organization === null) return;
  const addresses = await readAdminAddresses(db, organizationId);
  const sent = await Promise.allSettled(
    addresses.map((email) =>
      letters.sendBudgetAlert({
        email,
        organizationName: organization.name,
        scope: `${data.scope_type.replace('_', ' ')} ${data.scope_id}`,
        period: data.period,
        isHard: data.mode === 'hard',
        amount: data.amount_usd,
        spent: data.spent_usd,
        percent: data.percent,
        resetsAtMs: data.resets_at * 1000,
      }),
    ),
  );
  const failed = sent.find((result) => result.status === 'rejected');
  if (failed !== undefined && sent.every(({ status }) => status === 'rejected')) throw failed.reason;
}
