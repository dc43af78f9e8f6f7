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

/** An amount twice: rounded to the currency's minor unit, and with ten places. Decimal strings. */
export interface Amount {
  readonly currency: string;
  readonly amount: string;
  readonly amountExact: string;
}

/** Hours with six places. `unrated…` are those of them that no rate card covers. */
export interface Hours {
  readonly nodeHours: number;
  readonly gpuHours: number;
  readonly unratedHours: number;
  readonly unratedGpuHours: number;
}

/** What one cluster used at one version of a rate card and of a conversion rate. */
export interface LineItem {
  readonly hardwareProfile: string;
  /** UUID; null when it is not rated. */
  readonly rateCardId: string | null;
  /** First moment of use and the end of the last one, milliseconds since the Unix epoch. */
  readonly fromMs: number;
  readonly toMs: number;
  readonly nodeHours: number;
  readonly gpuHours: number;
  /** Null when it is rated. */
  readonly unratedReason: UnratedReason | null;
  /** In the currency of the rate card; null when it is not rated. */
  readonly native: NativeAmount | null;
  /** In the organization's billing currency where it could be converted, otherwise as native. */
  readonly billed: Amount | null;
  readonly conversion: ConversionStatus;
  /** Decimal string; null when nothing was converted. */
  readonly conversionRate: string | null;
  /** An end within it was concluded, not told. */
  readonly estimated: boolean;
}

export interface NativeAmount extends Amount {
  /** Decimal strings; null where the card prices no such hour. */
  readonly nodeHourPrice: string | null;
  readonly gpuHourPrice: string | null;
}

/** A line while usage is added to it. Milliseconds since the Unix epoch. */
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
 * Adds what was used in one segment to the line of its prices.
 * @param windowMs begin of the window, since which the piece counts its time
 * @returns whether this began a line
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

/** An amount before it is written out. */
export interface LineAmount {
  readonly currency: string;
  readonly exact: Exact;
}

/** What a line costs in the currency of its card and in the one that is billed; null when it is not rated. */
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

/** Adds line by line, so that every total is the sum of the rounded lines below it. */
export class Totals {
  #node = 0n;
  #gpu = 0n;
  #unratedNode = 0n;
  #unratedGpu = 0n;
  /** By currency; never added up across. */
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

  /** One entry a currency, by its code. */
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
