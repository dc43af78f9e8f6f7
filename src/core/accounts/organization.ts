/** Whoever has a wallet, projects and keys. The id is a UUID. */
export interface Organization {
  readonly id: string;
  readonly name: string;
  readonly createdAtMs: number;
}
