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
  /** Ends this gateway: the address of its database leads to another one. */
  readonly onExchanged: () => void;
}

/**
 * Has everything that this process keeps of PostgreSQL's rows read again once PostgreSQL's history may have gone back:
 * one list, of what does not find each change by itself. Codes of usage are none of it: nobody keeps them.
 */
export function followDatabaseChanges({ foundation, gateway, onExchanged }: DatabaseChangeParts): void {
  const { accounts, coordination, keys } = foundation;
  coordination.gateways.onDatabaseChange(async (change) => {
    if (change === 'exchanged') {
      // Its spool and its names in Redis are those of the other one.
      onExchanged();
      return;
    }
    await keys.start();
    accounts.forgetProjects();
    await gateway.admission.forgetBooks();
    await gateway.loadBounds();
    if (!(await gateway.catalog.recover())) throw new Error('engine files were read meanwhile');
  });
}
