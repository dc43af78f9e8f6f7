export type { StreamFailure } from './frame-meter.ts';
export { type JsonMeterOptions, type JsonMeterResult, type MeteredJson, meterJson } from './json-meter.ts';
export { brokenMessage, createMessagesMeter } from './messages-meter.ts';
export { createPiecesMeter, type PiecesMeter, type PiecesMeterResult } from './pieces-meter.ts';
export { brokenResponse, createResponsesMeter } from './responses-meter.ts';
export { createStreamMeter, type StreamMeter, type StreamMeterOptions } from './stream-meter.ts';
export { type CountTerms, type KnownUsage, noText, nothingSeen, type Seen, usageOf } from './usage-of.ts';
export { messagesUsage, openaiUsage, responsesUsage, type ShownBill } from './shown-usage.ts';
export { costOf, noUsage, type Usage, type UsageSource, usageSources } from './usage.ts';
