/** A configuration with which nothing can start; the message names the variable and a valid value. */
export class ConfigError extends Error {
  /** @param cause the error that makes the setting invalid, if there is one */
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'ConfigError';
  }
}
