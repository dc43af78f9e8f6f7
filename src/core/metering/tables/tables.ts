export {
  createCodes,
  idCodeSql,
  idCodesSql,
  nameCodeSql,
  nameCodesSql,
  textsSql,
  UnknownOwnerError,
  valuesSql,
} from './codes.ts';
export { bucketOf, type LatencyMeasure, latencyMeasures, valueOfBucket } from './latency-buckets.ts';
export { packFacts, type RequestFacts, type StoredFacts, unpackFacts } from './facts.ts';
export {
  beginPartitions,
  dropOldPartitions,
  ensurePartitions,
  holdPartitions,
  isBeforeRetention,
  isBetweenPartitions,
  packPartitions,
  readFloorMs,
  readPartitions,
} from './partitions.ts';
export { type KnownIds, nobodyKnown, ownersText, recordsText, unknownOrganization } from './verify-names.ts';
