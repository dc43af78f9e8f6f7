/** Limits of a package. They apply while the package is read: nothing is inflated beyond them. */

export const packageBytesMax = 10 * 1024 * 1024;
export const entriesMax = 2000;
export const fileBytesMax = 10 * 1024 * 1024;
export const inflatedBytesMax = 50 * 1024 * 1024;
export const manifestBytesMax = 64 * 1024;
export const hclFileBytesMax = 256 * 1024;
/** Most bytes of all Terraform files in the root folder together. */
export const hclBytesMax = 2 * 1024 * 1024;
export const hclTimeoutMs = 5000;
export const inputsMax = 200;

/** Formats a size for people: "10 MiB". */
export const sizeText = (bytes: number): string =>
  bytes >= 1024 * 1024 ? `${bytes / (1024 * 1024)} MiB` : `${bytes / 1024} KiB`;
