export { createGroupCommit, type Durable, type GroupCommit } from './group-commit.ts';
export {
  findQuarantined,
  insertQuarantined,
  type KeptRecord,
  listQuarantined,
  type QuarantinedRecord,
  readKept,
  readQuarantined,
} from './quarantine.ts';
export type { DetailedRecord, OutcomeKind, UsageRecord } from './record.ts';
export { createRefusals, type RefusalKey } from './refusals.ts';
export { createRejectedRequests, type RejectedRequest } from './rejected-requests.ts';
export { type DetailedRow, recordColumns, type RecordRow, toRecord } from './rows.ts';
export { decodeRecord, encodeRecord } from './spooled-record.ts';
export { createWriter, type Writer, type Written } from './writer.ts';
