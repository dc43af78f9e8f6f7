import type { CreatedKeyAnswer, KeyAnswer } from '#edge/contract/keys.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  copyable,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  type PortalParts,
  radios,
  type Refusal,
  refused,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { readyToPaste } from './key-pages.ts';

/** Creates a new secret for a key. */

const graces = [
  { value: '0', label: 'Immediately' },
  { value: '3600', label: 'After 1 hour' },
  { value: '86400', label: 'After 24 hours' },
  { value: '604800', label: 'After 7 days' },
  { value: '2592000', label: 'After 30 days' },
] as const;

/** The default of `POST /v1/keys/{id}/rotate`. */
const usualGrace = '86400';

const pathOf = (id: string): string => `/v1/keys/${encodeURIComponent(id)}`;

const endsOf = ({ prefix, last4 }: Pick<KeyAnswer, 'prefix' | 'last4'>): Html => html`<code>${prefix}…${last4}</code>`;

export async function rotateKeyPage(visit: Visit, id: string): Promise<Response> {
  return formPage(visit, await visit.get<KeyAnswer>(pathOf(id)), usualGrace, null);
}

function formPage(visit: Visit, key: KeyAnswer, grace: string, refusal: Refusal | null): Response | Promise<Response> {
  const { former_secrets_end_at: end } = key;
  const earlier: MaybeHtml =
    end === null
      ? null
      : html`<p>
          An earlier secret stays valid until ${timeOf(end, 'never')}. This rotation does not change that time.
        </p>`;
  const body = html`${refused(refusal)}
    <div class="confirm">
      <p>
        The key <strong>${key.name}</strong> gets a new secret, shown only once. The key keeps its limits, usage and
        project. Requests with the current secret ${endsOf(key)} return 401 after it expires.
      </p>
      ${earlier}
      <form method="post" action="/portal/keys/${key.id}/rotate">
        ${formToken(visit)}
        <input type="hidden" name="last4" value="${key.last4}" />
        ${radios({ name: 'grace_seconds', legend: 'Current secret expires', choices: graces, chosen: grace, hint: 'Allow enough time to deploy the new secret. Choose "Immediately" if the current secret leaked.' })}
        <p class="buttons">
          <button class="primary">Rotate secret</button> <a href="/portal/keys/${key.id}">Cancel</a>
        </p>
      </form>
    </div>`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: `Rotate the secret of ${key.name}`, body, status });
}

const sentTwice: Refusal = {
  status: 409,
  message:
    'Nothing was changed: this key got a new secret after the form was opened. If this form was sent twice and you did ' +
    'not see the new secret, send the form again.',
  problems: new Map(),
};

export async function rotateKey(visit: Visit, parts: PortalParts, id: string, form: Form): Promise<Response> {
  const before = await visit.get<KeyAnswer>(pathOf(id));
  const grace = form.text('grace_seconds');
  const seconds = /^\d{1,9}$/.test(grace) ? Number(grace) : null;
  // Sends `last4`, so that the same form sent twice rotates once: a second rotation would end the new secret before
  // anybody has stored it.
  const body = { grace_seconds: seconds, last4: form.text('last4') };
  const made = await visit.send<CreatedKeyAnswer>('POST', `${pathOf(id)}/rotate`, body);
  if (made.ok) return rotatedPage(visit, parts, { before, key: made.body, seconds: seconds ?? 0 });
  if (!made.refusal.problems.has('last4')) return formPage(visit, before, grace, made.refusal);
  return formPage(visit, await visit.get<KeyAnswer>(pathOf(id)), grace, sentTwice);
}

interface Rotated {
  readonly before: KeyAnswer;
  readonly key: CreatedKeyAnswer;
  /** Seconds for which the former secret still works. */
  readonly seconds: number;
}

async function rotatedPage(visit: Visit, parts: PortalParts, { before, key, seconds }: Rotated): Promise<Response> {
  const { rotated_at: at } = key;
  const former =
    seconds === 0 || at === null
      ? html`The former secret ${endsOf(before)} is no longer valid.`
      : html`The former secret ${endsOf(before)} is valid until ${timeOf(at + seconds, 'never')}; the new secret is
        ${endsOf(key)}.`;
  const body = html`${notice('good', html`<p><strong>Copy the secret now: it is shown only once.</strong> Deploy the secret wherever the key is used. ${former}</p>`)}
    ${copyable('secret', key.secret, 'Copy secret')} ${await readyToPaste(visit, parts, key.secret)}
    <p class="buttons"><a class="button" href="/portal/keys/${key.id}">View key</a></p>`;
  return page(visit, { title: key.name, body, returnTo: `/portal/keys/${key.id}` });
}
