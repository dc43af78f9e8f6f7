import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  copyable,
  type CreatedKeyAnswer,
  type Form,
  formToken,
  html,
  type Html,
  type KeyAnswer,
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
  { value: '0', label: 'Not at all' },
  { value: '3600', label: '1 hour' },
  { value: '86400', label: '24 hours' },
  { value: '604800', label: '7 days' },
  { value: '2592000', label: '30 days' },
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
    end === null ? null : html`<p>A secret that it had before works until ${timeOf(end, 'never')}; that stays so.</p>`;
  const body = html`${refused(refusal)}
    <div class="confirm">
      <p>
        The key <strong>${key.name}</strong> gets another secret, shown once. It stays the same key: its limits, its
        usage and its project are kept. Whatever sends the secret ${endsOf(key)} gets 401 once that has ended.
      </p>
      ${earlier}
      <form method="post" action="/portal/keys/${key.id}/rotate">
        ${formToken(visit)}
        <input type="hidden" name="last4" value="${key.last4}" />
        ${radios({ name: 'grace_seconds', legend: 'The secret of now works on for', choices: graces, chosen: grace, hint: 'Long enough to put the new one wherever the key is used. "Not at all" is for a secret that leaked.' })}
        <p class="buttons">
          <button class="primary">Make another secret</button> <a href="/portal/keys/${key.id}">Cancel</a>
        </p>
      </form>
    </div>`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: `Another secret for ${key.name}`, body, status });
}

const sentTwice: Refusal = {
  status: 409,
  message:
    'Nothing was done: this key has got another secret since the form was shown. Where that was this form, sent twice, ' +
    'and you have not seen the secret, send it once more.',
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
      ? html`The secret ${endsOf(before)} has ended.`
      : html`The secret ${endsOf(before)} works until ${timeOf(at + seconds, 'never')}; the new one is ${endsOf(key)}.`;
  const body = html`${notice('good', html`<p><strong>This is the only time that the secret is shown.</strong> Put it wherever the key is used. ${former}</p>`)}
    ${copyable('secret', key.secret, 'Copy the secret')} ${await readyToPaste(visit, parts, key.secret)}
    <p class="buttons"><a class="button" href="/portal/keys/${key.id}">To the key</a></p>`;
  return page(visit, { title: key.name, body, returnTo: `/portal/keys/${key.id}` });
}
