import {
  convert,
  type Exact,
  formatExact,
  formatFixed,
  formatPrice,
  hoursOf,
  priceOf,
  type Quantity,
  roundExact,
  toMicroGpuHours,
  toMicroHours,
} from './amount.ts';
import { minorUnitsOf } from './currencies.ts';
import type { ConversionStatus, Pricing, UnratedReason } from './pricing.ts';
import type { PricedPiece } from './rated-usage.ts';

/** An amount twice: rounded to the currency's minor unit, and with ten decimal places. Decimal strings. */
export interface Amount {
  readonly currency: string;
  readonly amount: string;
  readonly amountExact: string;
}

/** Hours with six decimal places. `unrated…` are the hours among them that no rate card covers. */
export interface Hours {
  readonly nodeHours: number;
  readonly gpuHours: number;
  readonly unratedHours: number;
  readonly unratedGpuHours: number;
}

/**
 * Usage of one cluster at one version of a rate card and of a conversion rate; in a split report, the part of it with
 * one value.
 */
export interface LineItem {
  readonly hardwareProfile: string;
  /** The value of the split; null without one. */
  readonly split: string | null;
  /** UUID; null if unrated. */
  readonly rateCardId: string | null;
  /** First moment of use and end of the last one, milliseconds since the Unix epoch. */
  readonly fromMs: number;
  readonly toMs: number;
  readonly nodeHours: number;
  readonly gpuHours: number;
  /** Null if rated. */
  readonly unratedReason: UnratedReason | null;
  /** In the currency of the rate card; null if unrated. */
  readonly native: NativeAmount | null;
  /** In the organization's billing currency if it could be converted, otherwise the native amount. */
  readonly billed: Amount | null;
  readonly conversion: ConversionStatus;
  /** Decimal string; null if nothing was converted. */
  readonly conversionRate: string | null;
  /** True if an end within it is inferred, not reported. */
  readonly estimated: boolean;
}

export interface NativeAmount extends Amount {
  /** Decimal strings; null if the card has no price for that hour. */
  readonly nodeHourPrice: string | null;
  readonly gpuHourPrice: string | null;
}

/** A line while usage is added. Times are milliseconds since the Unix epoch. */
export interface LineSum {
  readonly hardwareProfile: string;
  readonly split: string | null;
  readonly pricing: Pricing;
  nodeMs: bigint;
  gpuShareMs: bigint;
  fromMs: number;
  toMs: number;
  estimated: boolean;
}

/** The part of a line that usage belongs to. */
interface LinePart {
  readonly hardwareProfile: string;
  readonly split: string | null;
}

/**
 * Adds the usage of one segment to the line with the same prices.
 * @param windowMs start of the window, from which the piece counts its time
 * @returns true if this added a line
 */
export function addPiece(
  lines: Map<string, LineSum>,
  { hardwareProfile, split }: LinePart,
  piece: PricedPiece,
  windowMs: number,
): boolean {
  // Keys of prices have no line break, and profiles have none either.
  const key = `${piece.pricing.key}\n${hardwareProfile}\n${split ?? ''}`;
  const [fromMs, toMs] = [windowMs + piece.startedMs, windowMs + piece.endedMs];
  const line = lines.get(key);
  if (line === undefined) {
    const { nodeMs, gpuShareMs, pricing, estimated } = piece;
    lines.set(key, { hardwareProfile, split, pricing, nodeMs, gpuShareMs, fromMs, toMs, estimated });
    return true;
  }
  line.nodeMs += piece.nodeMs;
  line.gpuShareMs += piece.gpuShareMs;
  line.fromMs = Math.min(line.fromMs, fromMs);
  line.toMs = Math.max(line.toMs, toMs);
  line.estimated ||= piece.estimated;
  return false;
}

/** An amount before it is formatted. */
export interface LineAmount {
  readonly currency: string;
  readonly exact: Exact;
}

/** Returns a cost in the card's currency and in the billed one; null if unrated. */
export function amountsOf(
  used: Quantity,
  pricing: Pricing,
): { readonly native: LineAmount; readonly billed: LineAmount } | null {
  if (!pricing.rated) return null;
  const native = { currency: pricing.card.currency, exact: priceOf(used, pricing.card) };
  if (pricing.conversion === null) return { native, billed: native };
  const { to, rate } = pricing.conversion;
  return { native, billed: { currency: to, exact: convert(native.exact, rate) } };
}

/** An amount with its rounded value, in minor units of the currency. */
interface RoundedAmount extends LineAmount {
  readonly rounded: bigint;
}

/** Usage that was rounded: hours in millionths. */
export interface RoundedPart {
  readonly nodeHours: bigint;
  readonly gpuHours: bigint;
  /** Both null if unrated; the same object if nothing is converted. */
  readonly native: RoundedAmount | null;
  readonly billed: RoundedAmount | null;
}

/**
 * Rounds the parts of one line: a line is rounded once, and each part gets what the parts up to it come to, rounded,
 * less what the parts before it come to, rounded. So the parts of a line add up to the line, however it is divided.
 */
export function roundParts(pricing: Pricing, parts: readonly Quantity[]): readonly RoundedPart[] {
  const [first, ...others] = parts;
  // Most lines have one part.
  if (first !== undefined && others.length === 0) return [roundLine(pricing, first)];
  const sum = { nodeMs: 0n, gpuShareMs: 0n };
  let before = roundLine(pricing, sum);
  return parts.map(({ nodeMs, gpuShareMs }) => {
    sum.nodeMs += nodeMs;
    sum.gpuShareMs += gpuShareMs;
    const upTo = roundLine(pricing, sum);
    const native = less(upTo.native, before.native);
    const part = {
      nodeHours: upTo.nodeHours - before.nodeHours,
      gpuHours: upTo.gpuHours - before.gpuHours,
      native,
      billed: upTo.billed === upTo.native ? native : less(upTo.billed, before.billed),
    };
    before = upTo;
    return part;
  });
}

function roundLine(pricing: Pricing, used: Quantity): RoundedPart {
  const amounts = amountsOf(used, pricing);
  const native = amounts === null ? null : rounded(amounts.native);
  return {
    nodeHours: toMicroHours(used.nodeMs),
    gpuHours: toMicroGpuHours(used.gpuShareMs),
    native,
    billed: amounts === null || amounts.billed === amounts.native ? native : rounded(amounts.billed),
  };
}

const rounded = ({ currency, exact }: LineAmount): RoundedAmount => ({
  currency,
  exact,
  rounded: roundExact(exact, minorUnitsOf(currency)),
});

function less(amount: RoundedAmount | null, before: RoundedAmount | null): RoundedAmount | null {
  if (amount === null || before === null) return null;
  return { ...amount, exact: amount.exact - before.exact, rounded: amount.rounded - before.rounded };
}

/** Writes an amount that is rounded by itself. */
export const writeAmount = (amount: LineAmount): Amount => writeRounded(rounded(amount));

const writeRounded = ({ currency, exact, rounded: units }: RoundedAmount): Amount => ({
  currency,
  amount: formatFixed(units, minorUnitsOf(currency)),
  amountExact: formatExact(exact),
});

/** Sums rounded parts, so that every total equals the sum of the parts below it. */
export class Totals {
  #node = 0n;
  #gpu = 0n;
  #unratedNode = 0n;
  #unratedGpu = 0n;
  /** Sums by currency; never added across currencies. */
  readonly #amounts = new Map<string, { rounded: bigint; exact: Exact }>();

  add({ nodeHours, gpuHours, billed }: RoundedPart): void {
    this.#node += nodeHours;
    this.#gpu += gpuHours;
    if (billed === null) {
      this.#unratedNode += nodeHours;
      this.#unratedGpu += gpuHours;
      return;
    }
    const sum = this.#amounts.get(billed.currency) ?? { rounded: 0n, exact: 0n };
    this.#amounts.set(billed.currency, sum);
    sum.rounded += billed.rounded;
    sum.exact += billed.exact;
  }

  hours(): Hours {
    return {
      nodeHours: hoursOf(this.#node),
      gpuHours: hoursOf(this.#gpu),
      unratedHours: hoursOf(this.#unratedNode),
      unratedGpuHours: hoursOf(this.#unratedGpu),
    };
  }

  /** Returns one entry per currency, sorted by code. */
  amounts(): readonly Amount[] {
    const sums = [...this.#amounts].toSorted(([a], [b]) => (a < b ? -1 : 1));
    return sums.map(([currency, sum]) => writeRounded({ currency, ...sum }));
  }
}

export function toLineItem(line: LineSum, part: RoundedPart): LineItem {
  const { pricing, hardwareProfile, split, fromMs, toMs, estimated } = line;
  const { native, billed } = part;
  const used = {
    hardwareProfile,
    split,
    fromMs,
    toMs,
    nodeHours: hoursOf(part.nodeHours),
    gpuHours: hoursOf(part.gpuHours),
    estimated,
  };
  if (!pricing.rated || native === null || billed === null) {
    return { ...used, ...notRated, unratedReason: pricing.rated ? null : pricing.reason };
  }
  const { card, status, conversion } = pricing;
  const written = writeRounded(native);
  return {
    ...used,
    rateCardId: card.id,
    unratedReason: null,
    native: {
      ...written,
      nodeHourPrice: card.nodeHour === null ? null : formatPrice(card.nodeHour),
      gpuHourPrice: card.gpuHour === null ? null : formatPrice(card.gpuHour),
    },
    billed: billed === native ? written : writeRounded(billed),
    conversion: status,
    conversionRate: conversion === null ? null : formatPrice(conversion.rate),
  };
}

const notRated = { rateCardId: null, native: null, billed: null, conversion: 'none', conversionRate: null } as const;
