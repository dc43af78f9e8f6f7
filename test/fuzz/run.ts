import fc from 'fast-check';
import type { OpenTarget, Target } from './target.ts';

export interface RunOptions {
  /** Seed of the first round; each later one has the next. */
  readonly seed: number;
  /** Seed and path of a failed case, as fast-check prints them: only that case is tried. */
  readonly path: string | null;
  /** How long: rounds always are the same cases, seconds are as many as the machine makes of them. */
  readonly length: { readonly rounds: number } | { readonly seconds: number };
  readonly databaseUrl: string | null;
}

export interface Outcome {
  readonly cases: number;
  readonly seconds: number;
  /** Null where everything held; else what did not, with the case and how to repeat it. */
  readonly failure: string | null;
}

/** A round ends by itself; this ends the search for a smaller case than the one that failed. */
const roundMsMax = 300_000;

/** Opens a target, tries its known cases and then as many rounds of made ones as are asked for. */
export async function fuzz<Case>(target: Target<Case>, options: RunOptions): Promise<Outcome> {
  const opened = await target.open(options.databaseUrl);
  const sinceMs = performance.now();
  const { length, path } = options;
  const goesOn = (rounds: number): boolean =>
    'rounds' in length ? rounds < length.rounds : secondsSince(sinceMs) < length.seconds;
  let cases = 0;
  try {
    for (let round = 0; round === 0 || (path === null && goesOn(round)); round += 1) {
      const known = round === 0 && path === null ? opened.known : [];
      const tried = await tryRound(opened, target, { seed: options.seed + round, path, known });
      cases += tried.cases;
      if (tried.failure !== null) return { cases, seconds: secondsSince(sinceMs), failure: tried.failure };
    }
    return { cases, seconds: secondsSince(sinceMs), failure: null };
  } finally {
    await opened.close();
  }
}

const secondsSince = (ms: number): number => (performance.now() - ms) / 1000;

interface Round<Case> {
  readonly seed: number;
  readonly path: string | null;
  readonly known: readonly Case[];
}

async function tryRound<Case>(
  opened: OpenTarget<Case>,
  { name, roundCases }: Target<Case>,
  { seed, path, known }: Round<Case>,
): Promise<{ cases: number; failure: string | null }> {
  let cases = 0;
  const tried = async (given: Case): Promise<void> => {
    cases += 1;
    await opened.try(given);
  };
  for (const given of known) {
    const wrong = await messageOf(tried(given));
    if (wrong !== null)
      return { cases, failure: `${name}: ${wrong}\nwith a case that is known:\n${opened.show(given)}` };
  }
  const again = (more: string): string => `npm run fuzz -- --target ${name} --seed ${seed}${more}`;
  const details = await fc.check(fc.asyncProperty(opened.cases, tried), {
    seed,
    numRuns: roundCases,
    interruptAfterTimeLimit: roundMsMax,
    ...(path !== null && { path, endOnFailure: true }),
  });
  if (details.failed) {
    const [shrunk] = details.counterexample ?? [];
    const lines = [
      `${name}: ${details.errorInstance instanceof Error ? details.errorInstance.message : String(details.errorInstance)}`,
      `with, shrunk ${details.numShrinks} times:`,
      shrunk === undefined ? '(no case)' : opened.show(shrunk),
      `again: ${again(` --path ${details.counterexamplePath ?? ''}`)}`,
    ];
    return { cases, failure: lines.join('\n') };
  }
  const wrong = await messageOf(opened.settle());
  return {
    cases,
    failure: wrong === null ? null : `${name}: after the cases of a round ${wrong}\nagain: ${again('')}`,
  };
}

async function messageOf(doing: Promise<void>): Promise<string | null> {
  try {
    await doing;
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
