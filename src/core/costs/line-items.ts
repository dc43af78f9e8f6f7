import {
  convert,
  type Exact,
  formatExact,
  formatFixed,
  formatPrice,
  hoursOf,
  priceOf,
  roundExact,
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

/** Usage of one cluster at one version of a rate card and of a conversion rate. */
export interface LineItem {
  readonly hardwareProfile: string;
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
  readonly pricing: Pricing;
  nodeMs: bigint;
  gpuMs: bigint;
  fromMs: number;
  toMs: number;
  estimated: boolean;
}

/**
 * Adds the usage of one segment to the line with the same prices.
 * @param windowMs start of the window, from which the piece counts its time
 * @returns true if this added a line
 */
export function addPiece(
  lines: Map<string, LineSum>,
  hardwareProfile: string,
  piece: PricedPiece,
  windowMs: number,
): boolean {
  const key = `${piece.pricing.key} ${hardwareProfile}`;
  const [fromMs, toMs] = [windowMs + piece.startedMs, windowMs + piece.endedMs];
  const line = lines.get(key);
  if (line === undefined) {
    const { nodeMs, gpuMs, pricing, estimated } = piece;
    lines.set(key, { hardwareProfile, pricing, nodeMs, gpuMs, fromMs, toMs, estimated });
    return true;
  }
  line.nodeMs += piece.nodeMs;
  line.gpuMs += piece.gpuMs;
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

/** Returns the cost of a line in the card's currency and in the billed one; null if unrated. */
export function amountsOf(line: LineSum): { readonly native: LineAmount; readonly billed: LineAmount } | null {
  const { pricing } = line;
  if (!pricing.rated) return null;
  const native = { currency: pricing.card.currency, exact: priceOf(line, pricing.card) };
  if (pricing.conversion === null) return { native, billed: native };
  const { to, rate } = pricing.conversion;
  return { native, billed: { currency: to, exact: convert(native.exact, rate) } };
}

export function writeAmount({ currency, exact }: LineAmount): Amount {
  const digits = minorUnitsOf(currency);
  return { currency, amount: formatFixed(roundExact(exact, digits), digits), amountExact: formatExact(exact) };
}

/** Sums rounded lines, so that every total equals the sum of the lines below it. */
export class Totals {
  #node = 0n;
  #gpu = 0n;
  #unratedNode = 0n;
  #unratedGpu = 0n;
  /** Sums by currency; never added across currencies. */
  readonly #amounts = new Map<string, { rounded: bigint; exact: Exact }>();

  add(line: LineSum): void {
    const [node, gpu] = [toMicroHours(line.nodeMs), toMicroHours(line.gpuMs)];
    this.#node += node;
    this.#gpu += gpu;
    const amounts = amountsOf(line);
    if (amounts === null) {
      this.#unratedNode += node;
      this.#unratedGpu += gpu;
      return;
    }
    const { currency, exact } = amounts.billed;
    const sum = this.#amounts.get(currency) ?? { rounded: 0n, exact: 0n };
    this.#amounts.set(currency, sum);
    sum.rounded += roundExact(exact, minorUnitsOf(currency));
    sum.exact += exact;
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
    return sums.map(([currency, { rounded, exact }]) => {
      return { currency, amount: formatFixed(rounded, minorUnitsOf(currency)), amountExact: formatExact(exact) };
    });
  }
}

export function toLineItem(line: LineSum): LineItem {
  const { pricing, hardwareProfile, fromMs, toMs, estimated } = line;
  const amounts = amountsOf(line);
  const used = {
    hardwareProfile,
    fromMs,
    toMs,
    nodeHours: hoursOf(toMicroHours(line.nodeMs)),
    gpuHours: hoursOf(toMicroHours(line.gpuMs)),
    estimated,
  };
  if (!pricing.rated || amounts === null) {
    return { ...used, ...notRated, unratedReason: pricing.rated ? null : pricing.reason };
  }
  const { card, status, conversion } = pricing;
  return {
    ...used,
    rateCardId: card.id,
    unratedReason: null,
    native: {
      ...writeAmount(amounts.native),
      nodeHourPrice: card.nodeHour === null ? null : formatPrice(card.nodeHour),
      gpuHourPrice: card.gpuHour === null ? null : formatPrice(card.gpuHour),
    },
    billed: writeAmount(amounts.billed),
    conversion: status,
    conversionRate: conversion === null ? null : formatPrice(conversion.rate),
  };
}

const notRated = { rateCardId: null, native: null, billed: null, conversion: 'none', conversionRate: null } as const;
