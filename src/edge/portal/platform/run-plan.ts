import type { RunPlanAnswer } from '#edge/contract/runs.ts';
import { badge, html, type Html, table } from '#edge/portal/ui/ui.ts';
import { valueText } from './input-fields.ts';

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

/** Shows what a plan changes, resource by resource. */
export function planSection({ resources, truncated }: RunPlanAnswer): Html {
  const none = truncated ? null : html`<p class="quiet">The plan changes no resources.</p>`;
  return html`<section aria-labelledby="plan-title">
    <h2 id="plan-title">Planned changes</h2>
    ${resources.length === 0 ? none : resources.map(resource)}
    ${truncated ? html`<p class="hint">The plan is too large to show completely. Its counts are complete.</p>` : null}
  </section>`;
}

function resource({ address, action, attributes }: Resource): Html {
  return html`<details class="fold" open>
    <summary><code>${address}</code> ${badge(kinds[action], action)}</summary>
    ${table({
      caption: `Changes of ${address}`,
      columns: [{ title: 'Attribute' }, { title: 'Now' }, { title: 'Planned' }],
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
