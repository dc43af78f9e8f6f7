import { page } from '#edge/portal/frame/frame.ts';
import {
  badge,
  count,
  empty,
  figures,
  html,
  type Html,
  type MaybeHtml,
  type ModelAnswer,
  pathWith,
  type PortalParts,
  type PriceAnswer,
  RefusedError,
  snippetList,
  snippetsOf,
  table,
  type TaskType,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';

const words: Readonly<Record<ModelAnswer['status'], readonly ['good' | 'busy' | 'bad' | 'plain', string, string]>> = {
  ready: ['good', 'ready', 'It answers at once.'],
  starting: ['busy', 'starting', 'Its engine starts; a request that is sent now waits for it.'],
  cold: ['plain', 'cold', 'No engine runs for it. The first request starts one, and waits until it is there.'],
  failed: ['bad', 'failed', 'Its engine could not be started. Requests are refused until a start succeeds.'],
};

export function modelStatus({ status }: ModelAnswer): Html {
  const [kind, text] = words[status];
  return badge(kind, text);
}

/** Notes about how each status affects the next request. */
const startNotes: Readonly<Record<ModelAnswer['status'], string>> = {
  ready: 'it runs',
  starting: 'what comes now waits',
  cold: 'the first request waits',
  failed: 'once it can be started',
};

function coldStart({ status, expected_cold_start_seconds: seconds }: ModelAnswer): string | null {
  if (seconds === null || status === 'ready') return null;
  return seconds < 90 ? `within ${Math.ceil(seconds)} s` : `within ${Math.ceil(seconds / 60)} min`;
}

const chatTypes: readonly TaskType[] = ['chat', 'vision', 'code'];

function tryIt({ id, task_type }: ModelAnswer): MaybeHtml {
  if (!chatTypes.includes(task_type)) return null;
  return html`<a class="button" href="${pathWith('/portal/playground', { model: id })}">Try it</a>`;
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
          'No model can be used yet',
          html`Put an engine file into the engines folder, such as those of <code>engines/examples</code>, then run
            <code>npx headgate engines reload</code>.`,
        )
      : table({
          caption: 'Models and their prices',
          columns: [
            { title: 'Model' },
            { title: 'Kind' },
            { title: 'Status' },
            { title: 'Start', isNumber: true },
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
        Prices are in USD per million tokens; context is in tokens. Start is how long the first request to a model that
        is cold may wait: as long as its last start took, before that the longest that it may take.
      </p>
      ${body}`,
  });
}

function fallbacks({ fallbacks: ids }: ModelAnswer): MaybeHtml {
  if (ids.length === 0) return null;
  const links = ids.map((id) => html`<a href="/portal/models/${encodeURIComponent(id)}">${id}</a>`);
  return html`<p>
    Where it cannot answer, requests with <code>x-headgate-allow-fallback: true</code> are answered, at its own price,
    by ${links.map((link, index) => html`${index === 0 ? '' : ', or by '}${link}`)}.
  </p>`;
}

export async function modelPage(visit: Visit, parts: PortalParts, id: string): Promise<Response> {
  const list = await parts.models(visit.signedIn.principal.organizationId);
  const model = list.find((one) => one.id === id);
  if (model === undefined) {
    throw new RefusedError({
      status: 404,
      message: 'There is no such model for this organization.',
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
    ${own?.flex === undefined ? null : html`<p>With <code>"service_tier": "flex"</code> it waits while the engine is full, and pays ${usd(own.flex.input_per_million)} for input and ${usd(own.flex.output_per_million)} for output.</p>`}
    ${fallbacks(model)}
    ${model.hugging_face_id === null ? null : html`<p class="quiet">Also known as ${model.hugging_face_id}</p>`}
    <section aria-labelledby="use-title">
      <h2 id="use-title">Use it</h2>
      <p>
        With a key in
        <code>HEADGATE_API_KEY</code>${visit.may('keys') ? html`; <a href="/portal/keys/new">make one</a>` : null}.
      </p>
      ${snippetList(snippetsOf({ origin: visit.origin, model, secret: null }))}
    </section>`;
  return page(visit, { title: model.id, actions: tryIt(model), body });
}
