import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { createLowBalances } from '#core/accounts/accounts.ts';
import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';
import type { Part } from './lifecycle.ts';

export interface LowBalancesParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly foundation: Pick<Foundation, 'alerts'>;
  readonly gateway: Pick<Gateway, 'wallet'>;
}

const lookMs = 2000;

/** Connects accounts to the wallet for the alerts of low balances. */
export function createLowBalancesPart({ db, clock, log, foundation, gateway }: LowBalancesParts): Part {
  const lowBalances = createLowBalances({
    db,
    clock,
    log,
    balances: (organizationIds) => gateway.wallet.balances(db.sql, organizationIds),
    raiseIn: (tx, { organizationId, balance, lowBalance }) =>
      foundation.alerts.raiseIn(tx, {
        organizationId,
        type: 'wallet.low_balance',
        data: { balance, alert_below: lowBalance, currency: 'USD' },
      }),
  });
  return {
    name: 'low balances',
    jobs: [{ name: 'tell of low balances', everyMs: lookMs, where: 'one', run: () => lowBalances.look() }],
  };
}
