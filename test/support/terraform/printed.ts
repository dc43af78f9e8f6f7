import type { Body } from '#test/inference/inference-gateway.ts';

/**
 * Prints of programs on the nodes, without spaces and line ends. Terraform shows its part of a line where the rest
 * takes 100 ms to come, so a line may stand in two: https://github.com/mitchellh/go-linereader
 */
function printedBy(log: readonly Body[]): string {
  const printed = log.filter(({ type }) => type === 'provision_progress').map(({ message }) => String(message));
  return printed.join('').replaceAll(/\s/g, '');
}

/** Numbers of the rows that a log has, in its order. */
export const rowsOf = (log: readonly Body[]): number[] =>
  [...printedBy(log).matchAll(/row(\d+)\./g)].map(([, row]) => Number(row));

/** Checks whether a log has this text, in one line or over several. */
export function hasPrinted(log: readonly Body[], text: string): boolean {
  return log.some(({ message }) => message.includes(text)) || printedBy(log).includes(text.replaceAll(' ', ''));
}
