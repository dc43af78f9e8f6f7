import type { LimitsAnswer } from '#edge/contract/keys.ts';
import type { ProjectAnswer } from '#edge/contract/projects.ts';
import {
  checkbox,
  field,
  type Form,
  html,
  type Html,
  type MaybeHtml,
  modelsField,
  modelsOf,
  numberOf,
  radios,
  type Refusal,
  refused,
  select,
} from '#edge/portal/ui/ui.ts';

/** Fields of a key, as a form shows them and as the API accepts them. */

export const expiries = [
  { value: 'never', label: 'Never' },
  { value: '7d', label: '7 days' },
  { value: '30d', label: '30 days' },
  { value: '90d', label: '90 days' },
  { value: '1y', label: '1 year' },
] as const;

export const limitFields = [
  { name: 'requests_per_minute', label: 'Requests per minute' },
  { name: 'tokens_per_minute', label: 'Tokens per minute' },
  { name: 'max_concurrency', label: 'Concurrent requests' },
  { name: 'monthly_token_limit', label: 'Tokens per month' },
] as const satisfies readonly { readonly name: keyof LimitsAnswer; readonly label: string }[];

/** Choices of the form for the API's `confined`. */
export const confinements = [
  { value: 'budget', label: 'While its project has a budget that blocks' },
  { value: 'yes', label: 'Always' },
  { value: 'no', label: 'Not confined' },
] as const;

export function confinementOf(confined: boolean | null): (typeof confinements)[number]['value'] {
  if (confined === null) return 'budget';
  return confined ? 'yes' : 'no';
}

/** Choices of the form for the API's `unserved_tools`. */
const unservedToolChoices = [
  { value: 'model', label: 'As the engine file of the model says' },
  { value: 'drop', label: 'Leave out' },
  { value: 'reject', label: 'Reject the request' },
] as const;

const confinedHint =
  'A confined key works only in its own project and has no management rights. Other keys can name another project of ' +
  'the organization in X-Project-ID; the budgets of that project then apply.';

/** Field values when the form is shown; texts are as typed. */
export interface KeyFields {
  readonly name: string;
  readonly limits: Readonly<Record<keyof LimitsAnswer, string>>;
  /** Model ids, one on each line; empty for all. */
  readonly models: string;
  readonly storeRequests: boolean;
  readonly cacheResponses: boolean;
  /** Choice of `unservedToolChoices`. */
  readonly unservedTools: string;
  readonly endUserFromHeader: boolean;
  /** '' if the form does not ask: a key of a service account is always confined. */
  readonly confined: string;
}

export function limitTexts(limits: LimitsAnswer): KeyFields['limits'] {
  const text = (value: number | null): string => (value === null ? '' : String(value));
  return {
    requests_per_minute: text(limits.requests_per_minute),
    max_concurrency: text(limits.max_concurrency),
    tokens_per_minute: text(limits.tokens_per_minute),
    monthly_token_limit: text(limits.monthly_token_limit),
  };
}

export function typedFields(form: Form): KeyFields {
  return {
    name: form.text('name'),
    limits: {
      requests_per_minute: form.text('requests_per_minute'),
      max_concurrency: form.text('max_concurrency'),
      tokens_per_minute: form.text('tokens_per_minute'),
      monthly_token_limit: form.text('monthly_token_limit'),
    },
    models: form.text('models'),
    storeRequests: form.has('store_requests'),
    cacheResponses: form.has('cache_responses'),
    unservedTools: form.text('unserved_tools'),
    endUserFromHeader: form.has('end_user_from_header'),
    confined: form.text('confined'),
  };
}

/** Returns the body of `POST` and `PATCH /v1/keys`. */
export function toBody(fields: KeyFields): Record<string, unknown> {
  const { limits, confined, unservedTools } = fields;
  return {
    name: fields.name,
    requests_per_minute: numberOf(limits.requests_per_minute),
    max_concurrency: numberOf(limits.max_concurrency),
    tokens_per_minute: numberOf(limits.tokens_per_minute),
    monthly_token_limit: numberOf(limits.monthly_token_limit),
    models: modelsOf(fields.models),
    store_requests: fields.storeRequests,
    cache_responses: fields.cacheResponses,
    unserved_tools: unservedTools === 'model' || unservedTools === '' ? null : unservedTools,
    end_user_from_header: fields.endUserFromHeader,
    ...(confined !== '' && { confined: confined === 'budget' ? null : confined === 'yes' }),
  };
}

function nameAndLimits({ name, limits }: KeyFields, refusal: Refusal | null): Html {
  return html`${refused(refusal)}
    ${field({ name: 'name', label: 'Name', value: name, hint: 'The program that uses the key, for example "nightly reports".', refusal, isRequired: true, maxLength: 200 })}
    <fieldset class="limits">
      <legend>Limits</legend>
      <p class="hint">
        Empty means unlimited. Requests over a limit cost nothing and return 429, with the time to wait in Retry-After.
      </p>
      <div class="grid">
        ${limitFields.map((limit) => field({ ...limit, value: limits[limit.name], refusal, inputMode: 'numeric', maxLength: 20, placeholder: 'unlimited' }))}
      </div>
    </fieldset>`;
}

function toggles({ storeRequests, cacheResponses, unservedTools, endUserFromHeader }: KeyFields): Html {
  const tools = {
    name: 'unserved_tools',
    legend: 'Tools that a model does not serve',
    choices: unservedToolChoices,
    chosen: unservedTools,
    hint: 'Such as web search. Coding agents send tools of this kind with each request.',
  };
  return html`${radios(tools)}
    <fieldset class="toggles">
      <legend>End users</legend>
      ${checkbox('end_user_from_header', 'Read the end user from a header', endUserFromHeader, 'Only for a program that sets the header itself, such as Open WebUI. The operator names the header in HEADGATE_END_USER_HEADER.')}
    </fieldset>
    <fieldset class="toggles">
      <legend>Content</legend>
      ${checkbox('store_requests', 'Store requests and responses', storeRequests, 'You can then read the content of each request of this key. If off, Headgate stores no content.')}
      ${checkbox('cache_responses', 'Cache responses', cacheResponses, 'Identical requests get the stored response immediately, free of charge, at any temperature.')}
    </fieldset>`;
}

function confinement({ confined }: KeyFields): MaybeHtml {
  if (confined === '') return null;
  const legend = 'Confined to its project';
  return radios({ name: 'confined', legend, choices: confinements, chosen: confined, hint: confinedHint });
}

/** Facts that the forms show besides their fields: the available models, and why the form was rejected. */
export interface FormShown {
  readonly models: readonly string[];
  readonly refusal: Refusal | null;
}

export function editFields(fields: KeyFields, { models, refusal }: FormShown): Html {
  return html`${nameAndLimits(fields, refusal)} ${modelsField(fields.models, models, refusal)} ${confinement(fields)}
  ${toggles(fields)}`;
}

const scopeHint =
  'An inference key calls models and reads only its own usage. A management key can also create and revoke keys, and ' +
  'do everything else that your role allows. Programs do not need one.';

export interface NewKeyFields extends KeyFields {
  /** Identifies the form if it is sent twice. */
  readonly once: string;
  readonly expiry: string;
  readonly scope: string;
  readonly projectId: string;
}

export function createFields(fields: NewKeyFields, projects: readonly ProjectAnswer[], shown: FormShown): Html {
  const { models, refusal } = shown;
  const open = projects.filter(({ archived }) => !archived);
  const project: MaybeHtml =
    open.length === 0
      ? null
      : select(
          'project_id',
          'Project',
          open.map(({ id, name }) => ({ value: id, label: name })),
          fields.projectId,
        );
  const scopes = [
    { value: 'inference', label: 'Inference' },
    { value: 'management', label: 'Inference and management' },
  ];
  return html`${nameAndLimits(fields, refusal)}
  ${radios({ name: 'expiry', legend: 'Expires after', choices: expiries, chosen: fields.expiry, hint: 'Expired keys are rejected and do not count as active.' })}
  ${radios({ name: 'scope', legend: 'Scope', choices: scopes, chosen: fields.scope, hint: scopeHint })} ${project}
  ${modelsField(fields.models, models, refusal)} ${confinement(fields)} ${toggles(fields)}`;
}
