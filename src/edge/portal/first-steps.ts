import { setCookie } from 'hono/cookie';
import { parse } from 'hono/utils/cookie';
import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { ModelAnswer } from '#edge/contract/models.ts';
import type { WalletAnswer } from '#edge/contract/wallet.ts';
import {
  badge,
  counted,
  type Form,
  formToken,
  headerOf,
  html,
  type Html,
  isChat,
  type MaybeHtml,
  pathWith,
  placeOf,
  type PortalParts,
  sampleModel,
  snippetList,
  snippetsOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/**
 * The first steps on the overview. Each is marked once it is done. A person can put them away: a cookie per
 * person keeps that, beyond signing out.
 */

export interface Progress {
  readonly wallet: Pick<WalletAnswer, 'balance'> | null;
  /** Null if the visitor may not see keys. */
  readonly keys: readonly Pick<KeyAnswer, 'status' | 'held'>[] | null;
  /** False if no request was answered, or if the visitor may not see requests. */
  readonly hasAnswer: boolean;
  readonly models: readonly ModelAnswer[];
}

/** Browsers keep a cookie no longer; each visit keeps it anew. */
const keptSeconds = 400 * 86_400;

const cookieOf = ({ context, signedIn }: Visit, { isSecure }: PortalParts) => {
  const place = placeOf(context, isSecure);
  return { name: `${place.cookieName}-steps-${signedIn.session.userId}`, secure: place.isSecure };
};

function keep(visit: Visit, parts: PortalParts, maxAge: number): void {
  const { name, secure } = cookieOf(visit, parts);
  setCookie(visit.context, name, 'away', { path: '/', httpOnly: true, sameSite: 'Lax', secure, maxAge });
}

/** Returns true if the visitor put the first steps away in this browser, and keeps it so. */
export function areAway(visit: Visit, parts: PortalParts): boolean {
  const { name } = cookieOf(visit, parts);
  if (parse(headerOf(visit.context, 'cookie') ?? '', name)[name] !== 'away') return false;
  keep(visit, parts, keptSeconds);
  return true;
}

/** Puts the first steps away, or brings them back. */
export function changeFirstSteps(visit: Visit, parts: PortalParts, form: Form): Promise<Response> {
  keep(visit, parts, form.text('steps') === 'away' ? keptSeconds : 0);
  return Promise.resolve(visit.context.redirect('/', 303));
}

function changeButton(visit: Visit, to: 'away' | 'back', text: string): Html {
  return html`<form method="post" action="/portal/first-steps">
    ${formToken(visit)}<input type="hidden" name="steps" value="${to}" /><button class="plain">${text}</button>
  </form>`;
}

export const bringBack = (visit: Visit): Html => changeButton(visit, 'back', 'Show the first steps');

const firstQuestion = 'What is a headgate? Answer in one sentence.';

interface Step {
  readonly title: string;
  readonly isDone: boolean;
  readonly text: MaybeHtml;
  readonly action: MaybeHtml;
}

function requestStep(list: readonly ModelAnswer[], isDone: boolean): Step {
  const [kind, text, message] = isDone
    ? ['button', 'Open playground', '']
    : ['button primary', 'Ask a model', firstQuestion];
  return {
    title: 'First request',
    isDone,
    text: isDone ? null : 'The playground needs no API key. It streams the answer and shows its exact cost.',
    action: list.some(isChat)
      ? html`<a class="${kind}" href="${pathWith('/portal/playground', { message })}">${text}</a>`
      : null,
  };
}

function keyStep({ may }: Visit, keys: Progress['keys']): Step {
  if (!may('keys')) {
    const text = 'Owners and administrators of this organization create API keys. Ask one of them for a key.';
    return { title: 'API key', isDone: false, text, action: null };
  }
  const active = keys?.filter(({ status, held }) => status === 'active' && !held).length ?? 0;
  return {
    title: 'API key',
    isDone: active > 0,
    text: `${active === 0 ? 'No active keys yet.' : `${counted(active, 'active key')}.`} Create one key for each program. The secret is shown only once.`,
    action: html`<a class="button" href="/portal/keys/new">Create key</a>`,
  };
}

function stepsOf(visit: Visit, { wallet, keys, hasAnswer, models: list }: Progress): readonly Step[] {
  const { hasPassword } = visit.signedIn.member;
  const hasCredit = wallet !== null && Number(wallet.balance) > 0;
  const password: Step = {
    title: 'Password',
    isDone: hasPassword,
    text: hasPassword
      ? null
      : 'You have no password yet. Set one to sign in with your email address instead of a link.',
    action: hasPassword ? null : html`<a class="button" href="/portal/account#password-title">Set a password</a>`,
  };
  const credit: Step = {
    title: 'Credit',
    isDone: hasCredit,
    text: hasCredit ? null : 'Requests are paid from the balance, and rejected once the balance is used up.',
    action: html`<a class="button" href="/portal/wallet?open=credits">Add credit</a>`,
  };
  return [requestStep(list, hasAnswer), keyStep(visit, keys), ...(visit.may('wallet.book') ? [credit] : []), password];
}

/** Renders the steps; null without a model. The part of the page that refreshes itself may contain it. */
export function firstSteps(visit: Visit, progress: Progress): MaybeHtml {
  if (sampleModel(progress.models) === undefined) return null;
  const steps = stepsOf(visit, progress);
  const done = steps.filter(({ isDone }) => isDone).length;
  const stepOf = ({ title, isDone, text, action }: Step): Html =>
    html`<li ${isDone ? html`class="done"` : null}>
      <h3>${title} ${isDone ? badge('good', 'done') : null}</h3>
      ${text === null ? null : html`<p>${text}</p>`} ${action === null ? null : html`<p>${action}</p>`}
    </li>`;
  return html`<section class="steps" aria-labelledby="steps-title">
    <div class="heading">
      <h2 id="steps-title">First steps</h2>
      <div class="actions">
        <span class="quiet">${done} of ${steps.length} done</span> ${changeButton(visit, 'away', 'Put away')}
      </div>
    </div>
    <ol>
      ${steps.map(stepOf)}
    </ol>
  </section>`;
}

/** Shows how a program sends a request; null without a model. */
export function firstExamples({ origin }: Visit, { models: list }: Progress): MaybeHtml {
  const model = sampleModel(list);
  if (model === undefined) return null;
  return html`<section class="examples" aria-labelledby="examples-title">
    <h2 id="examples-title">Send a request from a program</h2>
    <p>
      Any OpenAI library works: change only the base URL and the key. The first request starts a model that is not
      running.
    </p>
    <div class="code">
      <pre id="export" tabindex="0">export HEADGATE_API_KEY=sk-hg-…</pre>
    </div>
    ${snippetList(snippetsOf({ origin, model, secret: null }).slice(0, 3))}
  </section>`;
}
