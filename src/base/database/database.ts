export { createLeases } from './advisory-leases.ts';
export { type Change, CommitUnknownError, duringChange } from './commits.ts';
export {
  connectDb,
  connectDedicated,
  type Db,
  type DedicatedDb,
  isDatabaseUnavailable,
  isDiskFull,
  isUniqueViolation,
  isUnknownSchema,
  readTime,
  sqlStateOf,
  type StatementLimits,
  type Transaction,
  describeConnectionFailure,
} from './connect-database.ts';
export {
  compareMigrations,
  makeMigrationsTable,
  migrateDb,
  type Migration,
  NewerDatabaseError,
  noteMigration,
  readMigrations,
  readMissing,
} from './migrations.ts';
