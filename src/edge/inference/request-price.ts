import type { Catalog, Model, PriceVersion } from '#core/catalog/catalog.ts';
import type { Endpoint, RequestFields } from '#edge/inference/request/request.ts';

/** Returns the price of a model for a request: the price of its tier, or zero on a free route; null without a price. */
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
