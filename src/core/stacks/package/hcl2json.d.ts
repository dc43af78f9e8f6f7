/**
 * Declares the used part of hcl2json, for `paths` of tsconfig.json: its own declarations require those of a browser.
 */

/** @throws Error with the place in the file, as `parse config: [name:line,column: …]` */
export function parse(name: string, text: string): Promise<unknown>;
