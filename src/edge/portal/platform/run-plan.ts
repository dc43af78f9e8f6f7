import type { RunAnswer, RunPlanAnswer } from '#edge/contract/runs.ts';
import { badge, html, type Html, type MaybeHtml, table, type Visit } from '#edge/portal/ui/ui.ts';
import { valueText } from './input-fields.ts';
import { runPath } from './run-list.ts';
import { actionButton, moment } from './widgets.ts';

/** Sections for the plan of a run and for the results of its drift checks. */

type Resource = RunPlanAnswer['resources'][number];
type Attribute = Resource['attributes'][number];

const kinds: Readonly<Record<Resource['action'], 'good' | 'busy' | 'bad' | 'plain'>> = {
  create: 'good',
  update: 'busy',
  replace: 'bad',
  delete: 'bad',
  read: 'plain',
  forget: 'plain',
};

interface Words {
  readonly title: string;
  readonly none: string;
  readonly before: string;
  readonly after: string;
}

const planWords: Words = {
  title: 'Planned changes',
  none: 'The plan changes no resources.',
  before: 'Now',
  after: 'Planned',
};
/** Does not say that all is as it was applied: Terraform does not read back what provisioners did. */
const noDrift = 'No drift was found. Checks do not find what provisioners did on a node.';
const driftWords: Words = {
  title: 'Drift',
  none: noDrift,
  before: 'Applied',
  after: 'Now',
};

/** Shows what a plan changes, or what a drift check found, resource by resource. */
export function planSection({ resources, truncated }: RunPlanAnswer, isDriftCheck: boolean): Html {
  const words = isDriftCheck ? driftWords : planWords;
  const none = truncated ? null : html`<p class="quiet">${words.none}</p>`;
  return html`<section aria-labelledby="plan-title">
    <h2 id="plan-title">${words.title}</h2>
    ${resources.length === 0 ? none : resources.map((one) => resource(one, words))}
    ${truncated ? html`<p class="hint">The plan is too large to show completely. Its counts are complete.</p>` : null}
  </section>`;
}

function resource({ address, action, attributes }: Resource, { before, after }: Words): Html {
  return html`<details class="fold" open>
    <summary><code>${address}</code> ${badge(kinds[action], action)}</summary>
    ${table({
      caption: `Changes of ${address}`,
      columns: [{ title: 'Attribute' }, { title: before }, { title: after }],
      rows: attributes.map((one) => [
        html`<code>${one.name}</code>`,
        value(one.before, one),
        one.unknown ? html`<span class="quiet">known after apply</span>` : value(one.after, one),
      ]),
    })}
  </details>`;
}

function value(shown: unknown, { sensitive }: Attribute): Html {
  if (shown === undefined) return html`<span class="quiet">${sensitive ? 'secret, not shown' : 'none'}</span>`;
  return html`<code class="wrap">${valueText(shown)}</code>`;
}

type Drift = NonNullable<RunAnswer['drift']>;

const checkLink = (id: string, text: string): Html => html`<a href="${runPath({ id })}">${text}</a>`;

function found({ status, checked_at: at, check_run_id: id, changed, deleted }: Drift): Html {
  if (id === null) return html`<p>No check has completed yet.</p>`;
  const link = checkLink(id, status === 'drifted' ? 'Show what differs' : 'Last check');
  const text =
    status === 'drifted'
      ? html`Resources were changed or deleted outside of Headgate: ${changed} changed, ${deleted} deleted. Apply the
        stack again to restore them.`
      : noDrift;
  return html`<p>${text}</p>
    <p>${link} <span class="quiet">${moment(at)}</span></p>`;
}

/** Shows the drift of an APPLIED run, and null for other runs. */
export function driftSection(visit: Visit, run: RunAnswer): MaybeHtml {
  const { status, drift, check_drift: isChecked } = run;
  if (status !== 'APPLIED') return null;
  const path = `${runPath(run)}/drift-check`;
  const [pending, failed] = [drift?.pending_run_id ?? null, drift?.failed_run_id ?? null];
  const toggle = isChecked
    ? actionButton(visit, `${path}?regular=off`, 'Stop regular checks')
    : actionButton(visit, `${path}?regular=on`, 'Start regular checks');
  const isDrifted = drift?.status === 'drifted';
  return html`<section aria-labelledby="drift-title">
    <h2 id="drift-title">Drift ${isDrifted ? badge('bad', 'drifted') : null}</h2>
    ${drift === null ? html`<p>Not checked yet.</p>` : found(drift)}
    ${failed === null ? null : html`<p>${badge('bad', 'failed')} ${checkLink(failed, 'The last check failed')}.</p>`}
    ${pending === null ? null : html`<p>${checkLink(pending, 'A check')} is pending or active.</p>`}
    ${isChecked ? null : html`<p class="hint">Headgate does not check this run by itself.</p>`}
    ${visit.may('runs') ? html`<div class="actions">${actionButton(visit, path, 'Check for drift now')} ${toggle}</div>` : null}
  </section>`;
}
