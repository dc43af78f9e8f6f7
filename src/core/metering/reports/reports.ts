export { deleteOldLatency } from './latency.ts';
export type { Busy, ReplicaBusy } from './busy.ts';
export { createHistory, type History } from './history.ts';
export type { LedgerLine, LedgerLines, LedgerLinesRequest, LedgerPosition } from './ledger-lines.ts';
export { readRecord, type RecordFilter, type RecordPage, type RecordRef } from './record-list.ts';
export { createSpendingReports, type SpendingReports } from './spent.ts';
export type { RejectedFilter, RejectedPage } from './rejected-list.ts';
export type { Statement, StatementUsage } from './statement.ts';
export {
  type SummaryDimension,
  summaryDimensions,
  type SummaryGroup,
  type SummaryRow,
  type UsageSums,
} from './summary.ts';
export { type Timeline, timelineOf } from './timeline.ts';
export { uncountedEndpoints } from './unsure-sequences.ts';
export {
  type AskedOfHours,
  type Edge,
  type EdgeTokens,
  type EndedLater,
  type HourSpan,
  type LedgerDifference,
  readUsageHours,
  type UsageHour,
  type UsageHours,
} from './usage-hours.ts';
