import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { formatDecimal, MICRO_DIGITS } from '#base/money.ts';
import { encodeDefinition, type EngineDefinition, type EnginePricing } from '#core/catalog/files/files.ts';
import type { Priced } from './sync.ts';

/** Text forms of files' contents, which gateways compare with each other. */

/** Returns the prices and the base of a model, USD per million tokens: "input 0.1, cached 0.05, output 0.4". */
export function offerText({ pricing, flexPricing, baseId }: Priced): string {
  const parts = [
    pricing === null ? 'no price' : priceText(pricing),
    ...(flexPricing === null ? [] : [`flex ${priceText(flexPricing)}`]),
    ...(baseId === null ? [] : [`adapter of ${baseId}`]),
  ];
  return parts.join('; ');
}

export function priceText(pricing: EnginePricing): string {
  const usd = (value: bigint): string => formatDecimal(value, MICRO_DIGITS);
  const { inputPerMTokMicroUsd, cachedInputPerMTokMicroUsd, outputPerMTokMicroUsd } = pricing;
  return `input ${usd(inputPerMTokMicroUsd)}, cached ${usd(cachedInputPerMTokMicroUsd)}, output ${usd(outputPerMTokMicroUsd)}`;
}

/**
 * Returns a fingerprint of each engine file as the gateway reads it, with the variable of `image` filled in, by engine
 * id.
 * @param parentFolder holds the engines folder; its location does not change the fingerprints
 */
export function engineFingerprints(
  engines: readonly EngineDefinition[],
  parentFolder: string,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    engines.map((engine) => {
      const text = encodeDefinition({ ...engine, file: basename(engine.file) }).replaceAll(parentFolder, '');
      return [engine.id, createHash('sha256').update(text).digest('hex').slice(0, 12)];
    }),
  );
}
