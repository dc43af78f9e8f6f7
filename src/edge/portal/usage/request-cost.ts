import { formatUsd, MICRO_DIGITS, parseDecimal } from '#base/money.ts';
import type { UsageRequestDetailAnswer } from '#edge/contract/requests.ts';
import { count, html, type Html, type MaybeHtml, table, usd } from '#edge/portal/ui/ui.ts';

/** Shows how a request's cost adds up: tokens times price, exact to the pico-dollar. */

const sources = {
  engine: 'The engine counted the tokens.',
  last_seen: 'The tokens are the last count that the engine sent before the response ended.',
  none: 'The request used no tokens and is not charged.',
  counted: 'The gateway estimated the tokens, because the engine sent no usable count.',
} as const;

interface Line {
  readonly name: string;
  readonly tokens: number;
  readonly note: string;
  /** Price in micro-dollars per million tokens, which equals pico-dollars per token; null if unknown. */
  readonly picoPerToken: bigint | null;
}

function linesOf({ price, ...request }: UsageRequestDetailAnswer): readonly Line[] {
  const { input_tokens, input_cached_tokens, output_tokens, output_reasoning_tokens } = request;
  const { input_cache_write_tokens: written } = request;
  const pico = (decimal: string | undefined): bigint | null =>
    decimal === undefined ? null : parseDecimal(decimal, MICRO_DIGITS);
  const thought = output_reasoning_tokens === 0 ? '' : `${count(output_reasoning_tokens)} reasoning`;
  return [
    {
      name: 'Input',
      tokens: input_tokens - input_cached_tokens,
      note: written === 0 ? '' : `${count(written)} added to the engine's cache`,
      picoPerToken: pico(price?.input_per_million),
    },
    {
      name: 'Cached input',
      tokens: input_cached_tokens,
      note: '',
      picoPerToken: pico(price?.cached_input_per_million),
    },
    { name: 'Output', tokens: output_tokens, note: thought, picoPerToken: pico(price?.output_per_million) },
  ];
}

const unknown = html`<span class="quiet">unknown</span>`;

export function costSection(request: UsageRequestDetailAnswer): Html {
  const writtenOff = request.written_off === '0' ? '' : `${usd(request.written_off)} not charged`;
  const rows = linesOf(request).map(({ name, tokens, note, picoPerToken }): MaybeHtml[] => [
    note === '' ? name : html`${name} <span class="quiet">${note}</span>`,
    count(tokens),
    picoPerToken === null ? unknown : html`× ${usd(formatUsd(picoPerToken))}`,
    picoPerToken === null ? unknown : html`= ${usd(formatUsd(BigInt(tokens) * picoPerToken))}`,
  ]);
  return html`<section aria-labelledby="cost-title">
    <h2 id="cost-title">Cost</h2>
    ${table({
      caption: 'Tokens and prices of this request',
      columns: [
        { title: 'Tokens' },
        { title: 'Count', isNumber: true },
        { title: 'Price per token', isNumber: true },
        { title: 'Amount', isNumber: true },
      ],
      rows,
      foot: ['Charged', '', writtenOff, usd(request.cost)],
    })}
    <p class="quiet">
      ${sources[request.usage_source]} The price version is
      <code>${request.price_version}</code>${request.service_tier === 'flex' ? ', service tier flex' : ''}. Amounts are
      not rounded.
    </p>
  </section>`;
}
