import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import {
  type Catalog,
  createCatalog,
  type EngineDefinition,
  type PriceChange,
  priceText,
} from '#core/catalog/catalog.ts';
import { isContested } from '#core/gateways/gateways.ts';
import type { Foundation } from './foundation.ts';
import type { Part } from './lifecycle.ts';

/** Connects the catalog to the other gateways: all gateways apply the same price of a model. */

const pricesMs = 1000;
const priceKind = 'price';

export interface PricesParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly engines: readonly EngineDefinition[];
  readonly foundation: Pick<Foundation, 'audit' | 'accounts' | 'coordination'>;
  /** Milliseconds within which a stopped gateway is expected to come back with the files that it had. */
  readonly rolloutMs: number;
}

export interface Prices {
  readonly catalog: Catalog;
  /** Writes prices at its start: must start after every part that can fail. */
  readonly part: Part;
}

export function createPrices({ db, clock, engines, foundation, rolloutMs }: PricesParts): Prices {
  const { gateways } = foundation.coordination;
  const readContested = async (): Promise<(modelId: string) => boolean> => {
    const live = await gateways.readLive();
    const others = live.filter(({ id }) => id !== gateways.id);
    const own = gateways.published();
    return (modelId) => isContested(others, own, priceKind, modelId);
  };
  const catalog = createCatalog({
    db,
    clock,
    engines,
    onPriceChanged: (tx, change) => auditPrice(foundation, tx, change),
    readContested,
  });
  const late = settleLate(catalog, { readContested, clock, rolloutMs });
  gateways.publishes(priceKind, () => catalog.offers());
  const part: Part = {
    name: 'catalog',
    jobs: [
      {
        name: 'read prices of other gateways',
        everyMs: pricesMs,
        where: 'every',
        async run() {
          await catalog.refresh();
          await late.run();
        },
      },
    ],
    start: () => catalog.sync(),
  };
  return { catalog, part };
}

interface LateOptions {
  readonly readContested: () => Promise<(modelId: string) => boolean>;
  readonly clock: Clock;
  readonly rolloutMs: number;
}

/**
 * Writes pending prices once no live gateway has contested one of them for the time of a rollout: the other gateways
 * have left and will not come back. Earlier, the restart of one gateway would restore a price that only a gateway with
 * old files still has.
 */
function settleLate(catalog: Catalog, { readContested, clock, rolloutMs }: LateOptions): { run(): Promise<void> } {
  let sinceMs: number | null = null;
  return {
    async run() {
      const pending = catalog.pending();
      const contested = pending.length === 0 ? null : await readContested();
      const isFree = contested !== null && pending.some((modelId) => !contested(modelId));
      sinceMs = isFree ? (sinceMs ?? clock.monotonicMs()) : null;
      if (sinceMs === null || clock.monotonicMs() - sinceMs < rolloutMs) return;
      sinceMs = null;
      await catalog.settle();
    },
  };
}

type Audited = Pick<Foundation, 'audit' | 'accounts'>;

/** Records a price change in the audit, with prices and file. The reload of the files has an entry of its own. */
async function auditPrice({ audit, accounts }: Audited, tx: Transaction, change: PriceChange): Promise<void> {
  const platform = await accounts.readPlatformOrganization();
  if (platform === null) return;
  const { tier, modelId } = change.new;
  await audit.record(tx, {
    organizationId: platform.id,
    author: systemAuthor,
    action: 'price.changed',
    targetType: 'model',
    targetId: modelId,
    before: { tier, usd_per_million: priceText(change.old) },
    after: { tier, usd_per_million: priceText(change.new), file: change.file },
  });
}
