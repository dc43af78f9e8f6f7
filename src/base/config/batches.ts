import { whole } from './values.ts';
import { secondsMs, section } from './section.ts';

/** Files of organizations, and the batches of requests that are read from them. */
export interface BatchesConfig {
  /** Milliseconds for which a file is kept at most. */
  readonly fileAgeMaxMs: number;
  /** Bytes of all files per organization. */
  readonly filesBytesMax: number;
  /** Requests per batch. */
  readonly linesMax: number;
  /** Requests of all batches that this gateway runs at once. */
  readonly concurrency: number;
}

const tenGiB = 10_737_418_240;

export const batches = section(
  {
    HEADGATE_FILE_DAYS: whole(1, 36_500, 30),
    HEADGATE_FILES_MAX_BYTES: whole(1024, 1_125_899_906_842_624 - 1, tenGiB),
    HEADGATE_BATCH_LINES: whole(1, 200_000, 50_000),
    HEADGATE_BATCH_CONCURRENCY: whole(0, 10_000, 64),
  },
  (read): BatchesConfig => ({
    fileAgeMaxMs: secondsMs(read.HEADGATE_FILE_DAYS * 86_400),
    filesBytesMax: read.HEADGATE_FILES_MAX_BYTES,
    linesMax: read.HEADGATE_BATCH_LINES,
    concurrency: read.HEADGATE_BATCH_CONCURRENCY,
  }),
);
