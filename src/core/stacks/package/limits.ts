/** Bounds of a package. They hold while it is read: nothing is inflated beyond them. */

export const packageBytesMax = 10 * 1024 * 1024;
export const entriesMax = 2000;
export const fileBytesMax = 10 * 1024 * 1024;
export const inflatedBytesMax = 50 * 1024 * 1024;
export const manifestBytesMax = 64 * 1024;
export const hclFileBytesMax = 256 * 1024;
/** Of all files that Terraform reads of the root folder. */
export const hclBytesMax = 2 * 1024 * 1024;
export const hclTimeoutMs = 5000;
export const inputsMax = 200;

/** As people say it: "10 MiB". */
export const sizeText = (bytes: number): string =>
  bytes >= 1024 * 1024 ? `${bytes / (1024 * 1024)} MiB` : `${bytes / 1024} KiB`;
