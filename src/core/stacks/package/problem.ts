/** A problem of a package: of one of its files, or of a field of its manifest. */
export interface PackageProblem {
  readonly field: string;
  readonly message: string;
}

const problemsMax = 100;
const fieldCharsMax = 200;
const messageCharsMax = 500;

/** Returns names of files and texts of parsers, which may contain anything, as one printable line. */
function shown(text: string, charsMax: number): string {
  const line = text.toWellFormed().replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, '\u{fffd}');
  return line.length > charsMax ? `${line.slice(0, charsMax).toWellFormed()}…` : line;
}

/** Rejects a package, with all its problems. Nothing of the package was stored. */
export class PackageRefusedError extends Error {
  readonly problems: readonly PackageProblem[];

  constructor(problems: readonly PackageProblem[]) {
    const listed = problems.slice(0, problemsMax).map(({ field, message }) => ({
      field: shown(field, fieldCharsMax),
      message: shown(message, messageCharsMax),
    }));
    const left = problems.length - listed.length;
    const rest = left > 0 ? [{ field: 'file', message: `${left} more problems are not listed` }] : [];
    super('the package is invalid');
    this.name = 'PackageRefusedError';
    this.problems = [...listed, ...rest];
  }
}

/** @throws PackageRefusedError if there is a problem */
export function refuseProblems(problems: readonly PackageProblem[]): void {
  if (problems.length > 0) throw new PackageRefusedError(problems);
}
