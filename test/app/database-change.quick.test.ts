import { expect, it } from 'vitest';
import { followDatabaseChanges } from '#app/database-change.ts';
import type { DatabaseListener } from '#core/gateways/gateways.ts';

it('rejects when engine files were read in between, so that the next heartbeat reads everything again', async () => {
  let listener: DatabaseListener | null = null;
  const recovered = [false, true];
  const read: string[] = [];
  const note = (name: string) => async (): Promise<void> => void read.push(name);
  followDatabaseChanges({
    foundation: {
      accounts: { forgetProjects: () => void read.push('projects') },
      keys: { start: note('keys') },
      coordination: { gateways: { onDatabaseChange: (next) => void (listener = next) } },
    },
    gateway: {
      admission: { forgetBooks: note('books') },
      loadBounds: note('bounds'),
      catalog: { recover: async () => recovered.shift() ?? true },
    },
    onExchanged: () => void read.push('exchanged'),
  });
  const change = listener as DatabaseListener | null;
  await expect(change?.('rewound')).rejects.toThrow('the engine files were reloaded meanwhile');
  await change?.('rewound');
  expect(read).toEqual(['keys', 'projects', 'books', 'bounds', 'keys', 'projects', 'books', 'bounds']);
});
