import type { RunnerAnswer } from '#edge/contract/runs.ts';
import { html, type MaybeHtml, notice, type Visit } from '#edge/portal/ui/ui.ts';

/**
 * Explains why no stack can be applied. Returns null if stacks can be applied, or if the visitor may not apply them.
 */
export async function readRunnerProblem({ get, may }: Visit): Promise<MaybeHtml> {
  if (!may('runs')) return null;
  const { available, problem } = await get<RunnerAnswer>('/v1/runner');
  if (available) return null;
  return notice(
    'bad',
    html`<p>
      <strong>Stacks cannot be applied:</strong> ${problem}. Everything else works. Once this is fixed, you can apply
      stacks immediately.
    </p>`,
  );
}
