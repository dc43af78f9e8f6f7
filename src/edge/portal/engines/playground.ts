import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { AppError, errorEnvelope } from '#base/errors.ts';
import { isFormToken } from '#core/sessions/sessions.ts';
import type { ModelAnswer } from '#edge/contract/models.ts';
import type { UsageRequestDetailAnswer } from '#edge/contract/requests.ts';
import { type HttpContext, toAppError } from '#edge/http/http.ts';
import { assets, page } from '#edge/portal/frame/frame.ts';
import {
  area,
  empty,
  headerOf,
  html,
  type Html,
  isChat,
  notice,
  placeOf,
  type PortalParts,
  queryOf,
  requireOwnOrigin,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** Sends requests from a page, with a key of the signed-in user that only the gateway holds. */

/** Characters of a message that a link may prefill. Only the person sends the message. */
const messageMax = 2000;

/** Milliseconds between checks of the session while an answer streams: half of the promised second. */
const sessionLookMs = 500;

type Signed = Visit & { readonly token: string };

/** The first one of a list is chosen: ready models answer at once, and failed ones never. */
const statusOrder: readonly ModelAnswer['status'][] = ['ready', 'starting', 'cold', 'failed'];

/**
 * A model as the page's script reads it. Prices are exact decimals in USD per million tokens; null if there is no
 * price.
 */
interface PlaygroundModel {
  readonly id: string;
  readonly status: ModelAnswer['status'];
  readonly sees: boolean;
  readonly expectedSeconds: number | null;
  readonly price: UsageRequestDetailAnswer['price'];
}

/** Returns the models that the person may use, by status. */
async function listUsableModels(
  visit: Visit,
  { models, heldModels }: Pick<PortalParts, 'models' | 'heldModels'>,
): Promise<readonly ModelAnswer[]> {
  const { principal } = visit.signedIn;
  const [list, held] = await Promise.all([models(principal.organizationId), heldModels(principal)]);
  return list
    .filter(({ id }) => held?.includes(id) ?? true)
    .toSorted((one, other) => statusOrder.indexOf(one.status) - statusOrder.indexOf(other.status));
}

function chatModelsOf(list: readonly ModelAnswer[], prices: PortalParts['prices']): readonly PlaygroundModel[] {
  const priced = new Map(prices().map((price) => [price.model, price]));
  return list.filter(isChat).map(({ id, status, task_type, expected_cold_start_seconds }) => ({
    id,
    status,
    sees: task_type === 'vision',
    expectedSeconds: expected_cold_start_seconds,
    price: priced.get(id) ?? null,
  }));
}

/** Sends the current models to the page's script. */
export async function playgroundModels(visit: Visit, parts: PortalParts): Promise<Response> {
  return visit.context.json({ data: chatModelsOf(await listUsableModels(visit, parts), parts.prices) });
}

export async function playgroundPage(visit: Visit, parts: PortalParts): Promise<Response> {
  const usable = await listUsableModels(visit, parts);
  const models = chatModelsOf(usable, parts.prices);
  const others = usable.filter((model) => !isChat(model));
  const body =
    usable.length === 0
      ? empty('No models yet', html`See <a href="/portal/models">Models</a> for all models.`)
      : html`<div id="needs-script">
            ${notice('plain', html`<p>The playground requires JavaScript. Each <a href="/portal/models">model page</a> has code examples instead.</p>`)}
          </div>
          ${billing(visit)} ${models.length === 0 ? null : form(visit, models)}
          ${others.length === 0 ? null : callForm(visit, others)}`;
  return page(visit, { title: 'Playground', body, script: assets.playground });
}

const billing = ({ signedIn }: Visit): Html =>
  html`<p class="quiet">
    Requests use your API key named “Playground”, which is created with the first request. They are billed to the wallet
    of ${signedIn.member.organization.name}, as requests of your programs are. Prices are per million tokens.
  </p>`;

function modelChoice(name: string, label: string, models: readonly PlaygroundModel[], chosen: string | null): Html {
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <select id="${name}">
      ${chosen === null ? html`<option value="">none</option>` : null}
      ${models.map(({ id, status, price }) => {
        const costs =
          price === null ? '' : ` · ${usd(price.input_per_million)} in, ${usd(price.output_per_million)} out`;
        return html`<option value="${id}" data-costs="${costs}" ${id === chosen ? html`selected` : null}>
          ${id} · ${status}${costs}
        </option>`;
      })}
    </select>
  </div>`;
}

function numberField(id: string, label: string, placeholder: string): Html {
  return html`<div class="field">
    <label for="${id}">${label}</label>
    <input type="text" inputmode="decimal" id="${id}" placeholder="${placeholder}" autocomplete="off" maxlength="12" />
  </div>`;
}

function protocol(): Html {
  return html`<div class="field">
    <label for="protocol">Protocol</label>
    <select id="protocol" autocomplete="off">
      <option value="">Chat Completions</option>
      <option value="responses">Responses</option>
      <option value="messages">Messages (Anthropic)</option>
    </select>
    <p class="hint">How requests are sent. Messages requires an output limit: 1,024 if none is set.</p>
  </div>`;
}

function effort(): Html {
  return html`<div class="field">
    <label for="effort">Reasoning effort</label>
    <select id="effort" autocomplete="off">
      <option value="">model default</option>
      ${['none', 'low', 'medium', 'high'].map((one) => html`<option value="${one}">${one}</option>`)}
    </select>
  </div>`;
}

function presets(): Html {
  return html`<div class="grid">
      <div class="field">
        <label for="preset">Preset</label>
        <select id="preset" autocomplete="off"></select>
      </div>
      <div class="field">
        <label for="preset-name">Preset name</label>
        <input type="text" id="preset-name" autocomplete="off" maxlength="60" />
      </div>
    </div>
    <p class="buttons">
      <button type="button" id="preset-save">Save preset</button>
      <button type="button" id="preset-delete" disabled>Delete preset</button>
    </p>
    <p class="hint" id="preset-result" role="status"></p>`;
}

function settings(): Html {
  return html`<details class="fold" id="settings">
    <summary>Protocol, system prompt, limits, tools, presets</summary>
    <div class="fold-body">
      ${protocol()}
      ${area({ name: 'system', label: 'System prompt', value: '', rows: 2, placeholder: 'You are terse.' })}
      <div class="grid">
        ${numberField('temperature', 'Temperature', 'model default')} ${numberField('top-p', 'Top P', 'model default')}
        ${numberField('max-tokens', 'Max output tokens', 'for example 4096')} ${numberField('seed', 'Seed', 'random')}
        ${effort()}
      </div>
      ${area({ name: 'stop-sequences', label: 'Stop sequences', value: '', rows: 2, placeholder: 'END', hint: 'One text on each line. The answer ends before any of them.' })}
      ${area({ name: 'schema', label: 'JSON schema', value: '', rows: 4, placeholder: '{"type": "object", "properties": {"city": {"type": "string"}}}', hint: 'The answer is JSON that follows this schema.' })}
      ${area({ name: 'tools', label: 'Tools', value: '', rows: 4, placeholder: '[{"type": "function", "function": {"name": "…", "parameters": {…}}}]', hint: 'A JSON array, as in Chat Completions. Tool calls are shown, not executed.' })}
      ${presets()}
    </div>
  </details>`;
}

const taskNames: Partial<Record<ModelAnswer['task_type'], string>> = {
  embedding: 'embeddings',
  rerank: 'rerank',
  completion: 'completions',
};

/** Shows the form for models that do not chat. */
function callForm(visit: Visit, models: readonly ModelAnswer[]): Html {
  const listed = models.map(({ id, status, task_type: task }) => ({ id, status, task }));
  const asked = queryOf(visit.context, 'model');
  return html`<form
    id="calls"
    class="playground"
    hidden
    data-form-token="${visit.formToken}"
    data-models="${JSON.stringify(listed)}"
  >
    <h2>Embeddings, rerank, completions</h2>
    <div class="field">
      <label for="other-model">Model for one request</label>
      <select id="other-model" autocomplete="off">
        ${models.map(({ id, status, task_type: task }) => html`<option value="${id}" ${id === asked ? html`selected` : null}>${id} · ${taskNames[task] ?? task} · ${status}</option>`)}
      </select>
    </div>
    <div data-task="embedding">
      ${area({ name: 'texts', label: 'Texts', value: '', rows: 4, placeholder: 'A cat sleeps.', hint: 'One text on each line.' })}
    </div>
    <div data-task="rerank">
      ${area({ name: 'query', label: 'Query', value: '', rows: 2, placeholder: 'Which animal sleeps?' })}
      ${area({ name: 'documents', label: 'Documents', value: '', rows: 4, placeholder: 'A cat sleeps.', hint: 'One document on each line.' })}
    </div>
    <div data-task="completion">
      ${area({ name: 'completion', label: 'Prompt', value: '', rows: 3, placeholder: 'Once upon a time' })}
    </div>
    <p class="buttons">
      <button id="call">Run request</button>
      <span class="hint">Or press Ctrl+Enter.</span>
    </p>
    <p id="call-state" class="hint" role="status"></p>
    <div id="call-result"></div>
  </form>`;
}

/** Separates what one browser keeps for several people and organizations. */
const ownerOf = ({ signedIn: { session, principal } }: Visit): string =>
  `${session.userId}/${principal.organizationId}`;

function form(visit: Visit, models: readonly PlaygroundModel[]): Html {
  const asked = queryOf(visit.context, 'model');
  const named = models.find(({ id }) => id === asked)?.id ?? null;
  return html`<form
    id="playground"
    class="playground"
    hidden
    data-form-token="${visit.formToken}"
    data-origin="${visit.origin}"
    data-owner="${ownerOf(visit)}"
    data-models="${JSON.stringify(models)}"
    ${named === null ? null : html`data-named`}
    ${visit.may('engines') ? html`data-engines="/portal/engines/"` : null}
  >
    <div class="grid models">
      ${modelChoice('model-0', 'Model', models, named ?? models[0]?.id ?? '')}
      ${modelChoice('model-1', 'Compare with', models, null)}
    </div>
    ${settings()}
    <ol id="conversation" class="conversation" aria-live="polite"></ol>
    ${area({ name: 'prompt', label: 'Message', rows: 3, placeholder: 'Type a message', hint: 'Press Ctrl+Enter to send.', value: queryOf(visit.context, 'message').slice(0, messageMax) })}
    <div class="field" id="image-field" hidden>
      <label for="image">Image</label>
      <input type="file" id="image" accept="image/png,image/jpeg,image/webp,image/gif" />
      <p class="hint">At most 4 MB. Sent with the message.</p>
    </div>
    <p id="problem" class="problem" role="alert"></p>
    <p class="buttons">
      <button class="primary" id="send">Send</button>
      <button type="button" id="stop" disabled>Stop</button>
      <button type="button" id="clear">New conversation</button>
      <label class="check"><input type="checkbox" id="plain" autocomplete="off" /> Plain text</label>
    </p>
    <details class="fold" id="code">
      <summary>Copy as code</summary>
      <p class="hint">
        Code for your last request to the first model. Before the first request: code for the current settings.
      </p>
      <div id="code-list" class="snippets"></div>
    </details>
  </form>`;
}

/** Checks the token in a header. The body goes to the model, and forms of other sites cannot set headers. */
function requireScriptToken(context: HttpContext, token: string): void {
  if (isFormToken(token, headerOf(context, 'x-form-token') ?? '')) return;
  throw new AppError('insufficient_scope', {
    message: 'This page belongs to another session, so nothing was sent. Reload the page.',
  });
}

/** Paths of the page's requests to models, each with the API's path. */
export const playgroundCalls = {
  '/portal/playground/chat': '/v1/chat/completions',
  '/portal/playground/responses': '/v1/responses',
  '/portal/playground/messages': '/v1/messages',
  '/portal/playground/completions': '/v1/completions',
  '/portal/playground/embeddings': '/v1/embeddings',
  '/portal/playground/rerank': '/v1/rerank',
} as const;

type CallPath = (typeof playgroundCalls)[keyof typeof playgroundCalls];

/** Answers the page's request to a model with a stream or JSON. Errors have the API's envelope. */
export async function serveCall(
  path: CallPath,
  context: HttpContext,
  parts: PortalParts,
  visitOf: () => Promise<Signed | null>,
): Promise<Response> {
  try {
    requireOwnOrigin(context, placeOf(context, parts.isSecure));
    const visit = await visitOf();
    if (visit === null) throw sessionEnded();
    requireScriptToken(context, visit.token);
    await callInSession(path, visit, parts);
    return RESPONSE_ALREADY_SENT;
  } catch (error) {
    const failure = toAppError(error);
    context.set('failureCode', failure.code);
    if (failure.status >= 500)
      parts.log.error({ err: failure.cause ?? failure }, 'a playground request failed with a 5xx status (see err)');
    for (const [name, value] of Object.entries(failure.headers)) context.header(name, value);
    return context.json(errorEnvelope(failure), failure.status as 400);
  }
}

const sessionEnded = (): AppError =>
  new AppError('unauthorized', { message: 'Your session has ended. Sign in again, in this tab or another one.' });

/** Runs the request, and ends its answer when the session ends. */
async function callInSession(
  path: CallPath,
  { context, signedIn, token }: Signed,
  { callModel, sessions, log }: PortalParts,
): Promise<void> {
  const stop = new AbortController();
  const look = async (): Promise<void> => {
    try {
      if ((await sessions.find(token, false)) === null) stop.abort(sessionEnded());
    } catch (error) {
      // A failed check says nothing about the session, so the answer goes on.
      log.warn(
        { err: error },
        'the session behind a playground answer could not be checked; the answer continues until the next check',
      );
    }
    if (!stop.signal.aborted && !isOver) timer = setTimeout(() => void look(), sessionLookMs);
  };
  let isOver = false;
  let timer = setTimeout(() => void look(), sessionLookMs);
  try {
    const { incoming, outgoing } = context.env;
    const requestId = context.get('requestId');
    await callModel({
      path,
      principal: signedIn.principal,
      requestId,
      exchange: { incoming, outgoing },
      stop: stop.signal,
    });
  } finally {
    isOver = true;
    clearTimeout(timer);
  }
}
