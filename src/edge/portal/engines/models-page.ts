import type { ModelAnswer, PriceAnswer } from '#edge/contract/models.ts';
import { page } from '#edge/portal/frame/frame.ts';
import {
  badge,
  count,
  empty,
  figures,
  html,
  type Html,
  isChat,
  type MaybeHtml,
  pathWith,
  type PortalParts,
  RefusedError,
  snippetList,
  snippetsOf,
  table,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';

const words: Readonly<Record<ModelAnswer['status'], readonly ['good' | 'busy' | 'bad' | 'plain', string, string]>> = {
  ready: ['good', 'ready', 'Ready to serve.'],
  starting: ['busy', 'starting', 'The engine is starting. Requests wait until it is ready.'],
  cold: [
    'plain',
    'cold',
    'The engine is not running. The first request starts the engine and waits until it is ready.',
  ],
  failed: ['bad', 'failed', 'The engine could not start. Requests are rejected until a start succeeds.'],
};

export function modelStatus({ status }: ModelAnswer): Html {
  const [kind, text] = words[status];
  return badge(kind, text);
}

/** Notes about how each status affects the next request. */
const startNotes: Readonly<Record<ModelAnswer['status'], string>> = {
  ready: 'running',
  starting: 'requests wait',
  cold: 'the first request waits',
  failed: 'after the failure is fixed',
};

function coldStart({ status, expected_cold_start_seconds: seconds }: ModelAnswer): string | null {
  if (seconds === null || status === 'ready') return null;
  return seconds < 90 ? `within ${Math.ceil(seconds)} s` : `within ${Math.ceil(seconds / 60)} min`;
}

function tryIt(model: ModelAnswer): Html {
  const path = pathWith('/portal/playground', { model: model.id });
  return html`<a class="button" href="${isChat(model) ? path : `${path}#calls`}">Open in playground</a>`;
}

function price(list: readonly PriceAnswer[], id: string): PriceAnswer | undefined {
  return list.find(({ model }) => model === id);
}

const amount = (decimal: string | undefined): MaybeHtml =>
  decimal === undefined ? html`<span class="quiet">none</span>` : usd(decimal);

export async function modelsPage(visit: Visit, { models, prices }: PortalParts): Promise<Response> {
  const list = await models(visit.signedIn.principal.organizationId);
  const priced = prices();
  const body =
    list.length === 0
      ? empty(
          'No models yet',
          html`Add an engine file to the engines folder, for example from <code>engines/examples</code>. Then run
            <code>npx headgate engines reload</code>.`,
        )
      : table({
          caption: 'Models and their prices',
          columns: [
            { title: 'Model' },
            { title: 'Task' },
            { title: 'Status' },
            { title: 'Cold start', isNumber: true },
            { title: 'Context', isNumber: true },
            { title: 'Input', isNumber: true },
            { title: 'Cached input', isNumber: true },
            { title: 'Output', isNumber: true },
          ],
          rows: list.map((model) => {
            const own = price(priced, model.id);
            return [
              html`<a href="/portal/models/${encodeURIComponent(model.id)}">${model.id}</a
                >${model.name === model.id ? null : html`<br /><span class="quiet">${model.name}</span>`}`,
              model.task_type,
              modelStatus(model),
              coldStart(model) ?? html`<span class="quiet">none</span>`,
              count(model.context_length),
              amount(own?.input_per_million),
              amount(own?.cached_input_per_million),
              amount(own?.output_per_million),
            ];
          }),
        });
  return page(visit, {
    title: 'Models',
    body: html`<p class="lead">
        Prices are in USD per million tokens. Context is in tokens. Cold start is how long the first request to a cold
        model may wait: the duration of its last start, or its start timeout before the first start.
      </p>
      ${body}`,
  });
}

function fallbacks({ fallbacks: ids }: ModelAnswer): MaybeHtml {
  if (ids.length === 0) return null;
  const links = ids.map((id) => html`<a href="/portal/models/${encodeURIComponent(id)}">${id}</a>`);
  return html`<p>
    If this model is unavailable, requests with <code>x-headgate-allow-fallback: true</code> are answered by
    ${links.map((link, index) => html`${index === 0 ? '' : ', or by '}${link}`)}, at the price of the model that
    answers.
  </p>`;
}

export async function modelPage(visit: Visit, parts: PortalParts, id: string): Promise<Response> {
  const list = await parts.models(visit.signedIn.principal.organizationId);
  const model = list.find((one) => one.id === id);
  if (model === undefined) {
    throw new RefusedError({
      status: 404,
      message: 'This model does not exist or is not available to this organization.',
      problems: new Map(),
    });
  }
  const own = price(parts.prices(), id);
  const body = html`<p class="lead">${modelStatus(model)} ${words[model.status][2]}</p>
    ${figures([
      {
        label: 'Expected start',
        value: coldStart(model) ?? 'none',
        note: startNotes[model.status],
      },
      { label: 'Context', value: count(model.context_length), note: 'tokens' },
      { label: 'Input', value: amount(own?.input_per_million), note: 'per million tokens' },
      { label: 'Cached input', value: amount(own?.cached_input_per_million), note: 'per million tokens' },
      { label: 'Output', value: amount(own?.output_per_million), note: 'per million tokens' },
    ])}
    ${own?.flex === undefined ? null : html`<p>With <code>"service_tier": "flex"</code>, requests wait while the engine is full, and cost ${usd(own.flex.input_per_million)} for input and ${usd(own.flex.output_per_million)} for output per million tokens.</p>`}
    ${fallbacks(model)}
    ${model.hugging_face_id === null ? null : html`<p class="quiet">Also known as ${model.hugging_face_id}</p>`}
    <section aria-labelledby="use-title">
      <h2 id="use-title">Code examples</h2>
      <p>
        The examples read an API key from
        <code>HEADGATE_API_KEY</code>.${visit.may('keys') ? html` <a href="/portal/keys/new">Create key</a>` : null}
      </p>
      ${snippetList(snippetsOf({ origin: visit.origin, model, secret: null }))}
    </section>`;
  return page(visit, { title: model.id, actions: tryIt(model), body });
}
