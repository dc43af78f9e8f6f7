/** A backup that cannot be made or restored; the message is a sentence that says why. Nothing was changed. */
export class BackupError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'BackupError';
  }
}
