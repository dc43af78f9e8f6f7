import { type StreamMeter, type Usage, usageOf, type UsageSource } from '#core/metering/metering.ts';

/** The billed usage by a meter's counts, of a request whose prompt has no estimate. */
export function knownUsage(meter: StreamMeter): { usage: Usage; source: UsageSource } {
  const terms = { generates: true, promptTokens: 0, outputTokensMax: 1_000_000 };
  const { usage, usageSource: source } = usageOf(meter.seen(), terms, false);
  return { usage, source };
}
