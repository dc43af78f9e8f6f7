import {
  cleanLine,
  type Command,
  type CommandContext,
  type CommandOption,
  exitCodes,
  jsonText,
  parseAnswer,
  pathOf,
  printList,
  queryOf,
  readList,
  readText,
  textFlag,
  UsageError,
} from '#edge/cli/shell/shell.ts';

/** Commands over rate cards and conversion rates. Both are dated: ended and followed, never edited. */

const contract = () => import('#edge/contract/rates.ts');

interface Dated {
  readonly id: string;
  readonly effective_from: string;
  readonly effective_to: string | null;
}

const cards = {
  group: 'rate-cards',
  path: '/v1/billing/rate-cards',
  schema: async () => (await contract()).rateCards.schema,
  created: async () => (await contract()).rateCards.created,
  imported: async () => (await contract()).rateCards.imported,
} as const;

const conversions = {
  group: 'conversion-rates',
  path: '/v1/billing/conversion-rates',
  schema: async () => (await contract()).conversionRates.schema,
  created: async () => (await contract()).conversionRates.created,
  imported: async () => (await contract()).conversionRates.imported,
} as const;

type Kind = typeof cards | typeof conversions;

const datesText = ({ effective_from: from, effective_to: to }: Dated): string =>
  `from ${from}${to === null ? '' : ` to ${to}`}`;

async function listCards(context: CommandContext): Promise<number> {
  const query = queryOf(context, ['profile=hardware_profile', 'currency', 'at']);
  const rows = await readList(context, { path: cards.path, item: cards.schema, query });
  return printList(context, rows, {
    headings: ['ID', 'PROFILE', 'CURRENCY', 'NODE-HOUR', 'GPU-HOUR', 'FROM', 'TO'],
    row: (one) => [
      one.id,
      one.hardware_profile,
      one.currency,
      one.node_hour ?? '-',
      one.gpu_hour ?? '-',
      one.effective_from,
      one.effective_to ?? '-',
    ],
    none: 'no rate cards; add one with "headgate rate-cards add PROFILE --currency USD --gpu-hour PRICE"',
    leaveOut: ['ID', 'TO'],
  });
}

async function listConversions(context: CommandContext): Promise<number> {
  const query = queryOf(context, ['from', 'to', 'at']);
  const rows = await readList(context, { path: conversions.path, item: conversions.schema, query });
  return printList(context, rows, {
    headings: ['ID', 'FROM', 'TO', 'RATE', 'START', 'END'],
    row: (one) => [one.id, one.from, one.to, one.rate, one.effective_from, one.effective_to ?? '-'],
    none: 'no conversion rates; add one with "headgate conversion-rates add USD EUR RATE"',
    leaveOut: ['ID', 'END'],
  });
}

/** Returns the fields of the dates that the options give. */
function datesOf(context: CommandContext): Record<string, unknown> {
  const [start, end] = ['start', 'end'].map((name) => textFlag(context, name));
  return {
    ...(start && { effective_from: start }),
    ...(end && { effective_to: end }),
    ...(context.flags['retroactive'] === true && { retroactive: true }),
  };
}

async function add(context: CommandContext, { path, created }: Kind, fields: object): Promise<number> {
  const answer = await context.api.call('POST', path, { body: { ...fields, ...datesOf(context) } });
  const made = await parseAnswer<Dated & { readonly follows: Dated | null }>(created, answer);
  const ended = made.follows === null ? '' : `; ended ${made.follows.id}`;
  context.out(context.json ? jsonText(answer) : `${made.id}: ${datesText(made)}${ended}\n`);
  return exitCodes.ok;
}

function addCard(context: CommandContext): Promise<number> {
  const [currency, node, gpu] = ['currency', 'node-hour', 'gpu-hour'].map((name) => textFlag(context, name));
  if (!currency) throw new UsageError('--currency is missing');
  const prices = { ...(node && { node_hour: node }), ...(gpu && { gpu_hour: gpu }) };
  return add(context, cards, { hardware_profile: context.words[0], currency, ...prices });
}

function addConversion(context: CommandContext): Promise<number> {
  const [from, to, rate] = context.words;
  return add(context, conversions, { from, to, rate });
}

function importer({ path, imported, group }: Kind): (context: CommandContext) => Promise<number> {
  return async (context) => {
    const csv = readText(context.words[0] ?? '');
    const body = { csv, ...(context.flags['retroactive'] === true && { retroactive: true }) };
    const answer = await context.api.call('POST', `${path}/import`, { body });
    const { data } = await parseAnswer<{ readonly data: readonly Dated[] }>(imported, answer);
    context.out(context.json ? jsonText(answer) : `${data.length} ${group.replace('-', ' ')} added\n`);
    return exitCodes.ok;
  };
}

function ender({ path, schema }: Kind): (context: CommandContext) => Promise<number> {
  return async (context) => {
    const at = textFlag(context, 'at');
    const body = { ...(at && { at }), ...(context.flags['retroactive'] === true && { retroactive: true }) };
    const answer = await context.api.call('POST', `${pathOf(path, context.words[0])}/end`, { body });
    const ended = await parseAnswer<Dated>(schema, answer);
    context.out(context.json ? jsonText(answer) : `${cleanLine(ended.id)}: ${datesText(ended)}\n`);
    return exitCodes.ok;
  };
}

const retroactive = {
  retroactive: { type: 'boolean', about: 'allow times in the past, which changes existing reports' },
} as const satisfies Record<string, CommandOption>;
const dates = {
  start: { type: 'string', about: 'date (midnight UTC) or RFC 3339 time; default: now' },
  end: { type: 'string', about: 'end, exclusive; default: none' },
  ...retroactive,
} as const satisfies Record<string, CommandOption>;
const at = { at: { type: 'string', about: 'only rates in effect at this time' } } as const;
const one = { min: 1, max: 1 } as const;

/** Returns the commands that both kinds have. */
function shared(kind: Kind, noun: string, columns: string): readonly Command[] {
  return [
    {
      name: `${kind.group} import`,
      usage: 'FILE [--retroactive]',
      summary: `Add the ${noun}s of a CSV file, all or none; its columns: ${columns}, effective_from, effective_to.`,
      words: one,
      options: retroactive,
      run: importer(kind),
    },
    {
      name: `${kind.group} end`,
      usage: 'ID [--at TIME] [--retroactive]',
      summary: `End a ${noun}.`,
      words: one,
      options: { at: { type: 'string', about: 'end; default: now' }, ...retroactive },
      run: ender(kind),
    },
  ];
}

export const rateCommands: readonly Command[] = [
  {
    name: 'rate-cards ls',
    usage: '[--profile PROFILE] [--currency CODE] [--at TIME]',
    summary: 'List the prices of node-hours and GPU-hours, latest start first.',
    words: { min: 0, max: 0 },
    options: {
      profile: { type: 'string', about: 'only this hardware profile' },
      currency: { type: 'string', about: 'only this currency' },
      ...at,
    },
    run: listCards,
  },
  {
    name: 'rate-cards add',
    usage: 'PROFILE --currency CODE [--node-hour PRICE] [--gpu-hour PRICE] [--start TIME] [--end TIME] [--retroactive]',
    summary: 'Add a price of a hardware profile; it ends the current one.',
    words: one,
    options: {
      currency: { type: 'string', about: 'ISO 4217 code, such as USD' },
      'node-hour': { type: 'string', about: 'price of a node-hour' },
      'gpu-hour': { type: 'string', about: 'price of a GPU-hour' },
      ...dates,
    },
    run: addCard,
  },
  ...shared(cards, 'rate card', 'hardware_profile, currency, node_hour, gpu_hour'),
  {
    name: 'conversion-rates ls',
    usage: '[--from CODE] [--to CODE] [--at TIME]',
    summary: 'List the conversion rates between currencies, latest start first.',
    words: { min: 0, max: 0 },
    options: {
      from: { type: 'string', about: 'only from this currency' },
      to: { type: 'string', about: 'only to this currency' },
      ...at,
    },
    run: listConversions,
  },
  {
    name: 'conversion-rates add',
    usage: 'FROM TO RATE [--start TIME] [--end TIME] [--retroactive]',
    summary: 'Add the value of one unit of FROM in TO; it ends the current one.',
    words: { min: 3, max: 3 },
    options: dates,
    run: addConversion,
  },
  ...shared(conversions, 'conversion rate', 'from, to, rate'),
];
