import type { Catalog, Model, PriceVersion } from '#core/catalog/catalog.ts';
import type { Endpoint } from './endpoints.ts';
import type { RequestFields } from './fields.ts';

/** The price of a model for a request: that of its tier, or nothing where its route is free; null where it has none. */
export function priceOf(
  catalog: Catalog,
  model: Model,
  { isFree }: Endpoint,
  { serviceTier }: RequestFields,
): PriceVersion | null {
  const price = catalog.price(model.id, serviceTier);
  if (price === undefined) return null;
  return isFree === true ? free(price) : price;
}

const free = (price: PriceVersion): PriceVersion => ({
  ...price,
  inputPerMTokMicroUsd: 0n,
  cachedInputPerMTokMicroUsd: 0n,
  outputPerMTokMicroUsd: 0n,
});
