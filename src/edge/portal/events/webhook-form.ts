import { chosenTypes, mailedTypes } from '#core/alerts/alerts.ts';
import { beganWith, changesIn, checkbox, field, type Form, html, type Html, type Refusal } from '#edge/portal/ui/ui.ts';

/** Fields of a webhook, and check boxes for kinds of events. */

export interface WebhookFields {
  readonly url: string;
  readonly description: string;
  /** Null means all kinds. */
  readonly events: readonly string[] | null;
}

const words: Readonly<Record<(typeof chosenTypes)[number], string>> = {
  'wallet.low_balance': 'Low balance',
  'budget.reached': 'Budget reached an alert threshold',
  'budget.exceeded': 'Budget exceeded',
  'budget.many_users': 'Budget reached by many end users',
  'cost_budget.reached': 'Cost budget reached an alert threshold',
  'api_key.created': 'API key created',
  'api_key.rotated': 'API key rotated',
  'api_key.revoked': 'API key revoked',
  'api_key.reported': 'API key reported as leaked',
  'api_key.expiring': 'API key expires soon',
  'run.succeeded': 'Run succeeded',
  'run.failed': 'Run failed',
  'run.canceled': 'Run canceled or discarded',
  'run.needs_confirmation': 'Run waits for confirmation',
  'run.expiring': 'Applied stack expires soon',
  'run.drifted': 'Applied stack has drifted',
  'cluster.nodes_silent': 'Nodes stopped sending heartbeats',
  'cluster.nodes_back': 'Silent nodes are back',
  'engine.failed': 'Engine failed (platform organization only)',
  'gateways.differ': 'Gateways differ (platform organization only)',
  'platform.problem':
    'Problem with a disk, a backup, Redis, the platform key or the ledger (platform organization only)',
  'webhook.disabled': 'Webhook disabled',
};

const nameOf = (type: string): string => `event_${type.replaceAll('.', '_')}`;

/** Renders a check box for each kind. */
function kindBoxes(legend: string, chosen: readonly string[]): Html {
  return html`<fieldset>
    <legend>${legend}</legend>
    ${chosenTypes.map((type) => checkbox(nameOf(type), words[type], chosen.includes(type), html`<code>${type}</code>`))}
  </fieldset>`;
}

const kindsIn = (form: Form): string[] => chosenTypes.filter((type) => form.has(nameOf(type)));

export function webhookFields({ url, description, events }: WebhookFields, refusal: Refusal | null): Html {
  return html`${field({ name: 'url', label: 'URL', value: url, hint: 'An https URL with a public address. Events are sent as POST requests.', refusal, isRequired: true, maxLength: 2048, placeholder: 'https://example.com/headgate' })}
  ${field({ name: 'description', label: 'Description', value: description, refusal, maxLength: 500 })}
  ${checkbox('all_events', 'All events', events === null, 'Includes event types of later versions. Otherwise, only the types selected below are sent.')}
  ${kindBoxes('Event types', events ?? [])}`;
}

export function readWebhookFields(form: Form): WebhookFields {
  return {
    url: form.text('url').trim(),
    description: form.text('description'),
    events: form.has('all_events') ? null : kindsIn(form),
  };
}

/** Maps each kind to true if it is among the chosen ones. */
const switchesOf = (chosen: readonly string[]): Readonly<Record<string, boolean>> =>
  Object.fromEntries(chosenTypes.map((type) => [type, chosen.includes(type)]));

/**
 * Renders the check boxes for emails. @param chosen null for the default: the kinds that are emailed if nobody has chosen
 */
export function mailBoxes(chosen: readonly string[] | null): Html {
  const kinds = chosen ?? mailedTypes;
  return html`${beganWith(switchesOf(kinds), null)}${kindBoxes('Email owners and administrators about', kinds)}`;
}

/**
 * Applies the form's changes to the current choice. Returns null, in the API's format, for the default: the kinds that
 * are mailed if nobody has chosen.
 */
export function mailChoice(form: Form, now: readonly string[] | null): readonly string[] | null {
  const switches = { ...switchesOf(now ?? mailedTypes), ...changesIn(form, switchesOf(kindsIn(form))) };
  const chosen = chosenTypes.filter((type) => switches[type] === true);
  const isUsual = chosen.length === mailedTypes.length && mailedTypes.every((type) => chosen.includes(type));
  return isUsual ? null : chosen;
}
