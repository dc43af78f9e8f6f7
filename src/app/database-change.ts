import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';

export interface DatabaseChangeParts {
  readonly foundation: {
    readonly accounts: Pick<Foundation['accounts'], 'forgetProjects'>;
    readonly coordination: { readonly gateways: Pick<Foundation['coordination']['gateways'], 'onDatabaseChange'> };
    readonly keys: Pick<Foundation['keys'], 'start'>;
  };
  readonly gateway: {
    readonly admission: Pick<Gateway['admission'], 'forgetBooks'>;
    readonly catalog: Pick<Gateway['catalog'], 'recover'>;
    readonly loadBounds: Gateway['loadBounds'];
  };
  /** Ends this gateway: the URL of its database leads to another database. */
  readonly onExchanged: () => void;
}

/**
 * Reloads all rows of PostgreSQL that this process caches when PostgreSQL's history may have gone back: every cache
 * that does not find each change by itself. Codes of usage need no reload: no process caches them.
 */
export function followDatabaseChanges({ foundation, gateway, onExchanged }: DatabaseChangeParts): void {
  const { accounts, coordination, keys } = foundation;
  coordination.gateways.onDatabaseChange(async (change) => {
    if (change === 'exchanged') {
      // The spool and the names in Redis of this gateway belong to the former database.
      onExchanged();
      return;
    }
    await keys.start();
    accounts.forgetProjects();
    await gateway.admission.forgetBooks();
    await gateway.loadBounds();
    if (!(await gateway.catalog.recover())) throw new Error('the engine files were reloaded meanwhile');
  });
}
