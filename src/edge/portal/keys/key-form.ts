import {
  checkbox,
  field,
  type Form,
  html,
  type Html,
  type LimitsAnswer,
  type MaybeHtml,
  numberOf,
  type ProjectAnswer,
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
  { name: 'max_concurrency', label: 'Requests at once' },
  { name: 'monthly_token_limit', label: 'Tokens per month' },
] as const satisfies readonly { readonly name: keyof LimitsAnswer; readonly label: string }[];

/** Choices of the form for the API's `confined`. */
export const confinements = [
  { value: 'budget', label: 'While its project has a hard budget' },
  { value: 'yes', label: 'Always' },
  { value: 'no', label: 'Not confined' },
] as const;

export function confinementOf(confined: boolean | null): (typeof confinements)[number]['value'] {
  if (confined === null) return 'budget';
  return confined ? 'yes' : 'no';
}

const confinedHint =
  'A confined key is used for its own project only, and manages nothing. Any other key may name another project of the ' +
  'organization in X-Project-ID, and is then bounded by the budgets of that project.';

/** Field values when the form is shown; texts are as typed. */
export interface KeyFields {
  readonly name: string;
  readonly limits: Readonly<Record<keyof LimitsAnswer, string>>;
  readonly storeRequests: boolean;
  readonly cacheResponses: boolean;
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
    storeRequests: form.has('store_requests'),
    cacheResponses: form.has('cache_responses'),
    confined: form.text('confined'),
  };
}

/** Returns the body of `POST` and `PATCH /v1/keys`. */
export function toBody({ name, limits, storeRequests, cacheResponses, confined }: KeyFields): Record<string, unknown> {
  return {
    name,
    requests_per_minute: numberOf(limits.requests_per_minute),
    max_concurrency: numberOf(limits.max_concurrency),
    tokens_per_minute: numberOf(limits.tokens_per_minute),
    monthly_token_limit: numberOf(limits.monthly_token_limit),
    store_requests: storeRequests,
    cache_responses: cacheResponses,
    ...(confined !== '' && { confined: confined === 'budget' ? null : confined === 'yes' }),
  };
}

function nameAndLimits({ name, limits }: KeyFields, refusal: Refusal | null): Html {
  return html`${refused(refusal)}
    ${field({ name: 'name', label: 'Name', value: name, hint: 'What will use it, so that you know it again: "nightly reports".', refusal, isRequired: true, maxLength: 200 })}
    <fieldset class="limits">
      <legend>Limits</legend>
      <p class="hint">
        An empty field is unlimited. What goes beyond a limit is refused with 429, costs nothing and says when to come
        again.
      </p>
      <div class="grid">
        ${limitFields.map((limit) => field({ ...limit, value: limits[limit.name], refusal, inputMode: 'numeric', maxLength: 20, placeholder: 'unlimited' }))}
      </div>
    </fieldset>`;
}

function toggles({ storeRequests, cacheResponses }: KeyFields): Html {
  return html`<fieldset class="toggles">
    <legend>Content</legend>
    ${checkbox('store_requests', 'Store requests and answers', storeRequests, 'They can then be read with each request of this key. Without it no content is kept anywhere.')}
    ${checkbox('cache_responses', 'Cache responses', cacheResponses, 'An identical request gets the same answer at once, free of charge, at any temperature.')}
  </fieldset>`;
}

function confinement({ confined }: KeyFields): MaybeHtml {
  if (confined === '') return null;
  const legend = 'Confined to its project';
  return radios({ name: 'confined', legend, choices: confinements, chosen: confined, hint: confinedHint });
}

export function editFields(fields: KeyFields, refusal: Refusal | null): Html {
  return html`${nameAndLimits(fields, refusal)}${confinement(fields)}${toggles(fields)}`;
}

const scopeHint =
  'A key that only uses models sees nothing but its own usage. One that manages makes and deletes keys and does ' +
  'whatever else you may do: programs need none.';

export interface NewKeyFields extends KeyFields {
  /** Identifies the form if it is sent twice. */
  readonly once: string;
  readonly expiry: string;
  readonly scope: string;
  readonly projectId: string;
}

export function createFields(fields: NewKeyFields, projects: readonly ProjectAnswer[], refusal: Refusal | null): Html {
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
    { value: 'inference', label: 'Use models' },
    { value: 'management', label: 'Manage, too' },
  ];
  return html`${nameAndLimits(fields, refusal)}
  ${radios({ name: 'expiry', legend: 'Expires after', choices: expiries, chosen: fields.expiry, hint: 'An expired key is refused, and no longer counts as active.' })}
  ${radios({ name: 'scope', legend: 'It may', choices: scopes, chosen: fields.scope, hint: scopeHint })} ${project}
  ${confinement(fields)} ${toggles(fields)}`;
}
