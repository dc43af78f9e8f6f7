import { pricesSql } from '#core/catalog/catalog.ts';

/** Ids that usage may be stored for, as SQL from the rooms that own the tables. */
export interface KnownIds {
  /**
   * `select id`. All ids that these organizations use must be known; other organizations have only rows inserted by
   * hand.
   */
  readonly organizations: string;
  /** `select id, organization_id`. */
  readonly keys: string;
  /** `select id, organization_id`. */
  readonly projects: string;
}

/** No known ids. Prices must still be right. */
export const nobodyKnown: KnownIds = {
  organizations: 'select null::uuid as id where false',
  keys: 'select null::uuid as id, null::uuid as organization_id where false',
  projects: 'select null::uuid as id, null::uuid as organization_id where false',
};

/** Organization of findings whose organization is not in the list of ids. */
export const unknownOrganization = '00000000-0000-0000-0000-000000000000';

const tokensCost = `(r.input_tokens - r.input_cached_tokens)::numeric * p.input_price
    + r.input_cached_tokens::numeric * p.cached_price + r.output_tokens::numeric * p.output_price`;

/** Maximum number of answers per prompt that settings and engine files can allow; one is stored as null. */
const choicesMax = 1024;
const withChoices = "'/v1/chat/completions', '/v1/completions'";
const choicesDiffer = `(r.choices is not null and (r.choices not between 2 and ${choicesMax} or e.name not in (${withChoices})))`;
const fallbackUnknown = '(r.fallback_for is not null and f.name is null)';

/**
 * SQL for records of organization $1 whose cost is not their tokens at their price, or that refer to something missing.
 * A price belongs to one model and tier, so a model with an exchanged name does not fit the prices of its records.
 * Answers from the response cache cost nothing.
 */
export const recordsText = ({ organizations }: KnownIds): string => `
  with prices as materialized (${pricesSql}), known as materialized (${organizations})
  select coalesce(o.id, '${unknownOrganization}')::text as organization_id, r.id::text as id,
    case when o.id is null then format('organization %s', r.organization)
      when v.id is null then format('price version %s', r.price_version)
      when m.name is null then format('model %s', r.model) when e.name is null then format('endpoint %s', r.endpoint)
      when ${fallbackUnknown} then format('model %s', r.fallback_for)
      when p.id is null then format('price version %s does not exist', v.id)
      when p.model_id <> m.name then format('model %s, price of %s', m.name, p.model_id)
      when p.tier <> coalesce(r.service_tier, 'default')
        then format('tier %s, price of %s', coalesce(r.service_tier, 'default'), p.tier)
      when r.currency <> 'USD' then format('currency %s, should be USD', r.currency)
      when p.currency <> 'USD' then format('price version %s is in %s, should be USD', v.id, p.currency)
      when ${choicesDiffer} then format('%s answers to each prompt', r.choices)
      else format('%s pico-dollars, should be %s', r.cost + coalesce(r.written_off, 0),
        case when r.cache_hit then 0 else ${tokensCost} end) end as problem,
    case when o.id is null or v.id is null or m.name is null or e.name is null or ${fallbackUnknown} then 'unknown_code'
      else 'price_differs' end as kind
  from usage_requests r left join usage_ids o on o.code = r.organization
  left join usage_ids v on v.code = r.price_version left join usage_names m on m.code = r.model
  left join usage_names e on e.code = r.endpoint left join usage_names f on f.code = r.fallback_for left join prices p on p.id = v.id left join known n on n.id = o.id
  where ($1::uuid is null or o.id = $1::uuid) and (
    o.id is null or v.id is null or m.name is null or e.name is null or ${fallbackUnknown} or (p.id is null and n.id is not null)
    or p.model_id <> m.name or p.tier <> coalesce(r.service_tier, 'default')
    or r.currency <> 'USD' or p.currency <> 'USD' or ${choicesDiffer}
    or case when r.cache_hit then r.cost <> 0 else r.cost + coalesce(r.written_off, 0) <> ${tokensCost} end)`;

/** SQL for keys and projects in sums that do not belong to their organization; of organization $1. */
export const ownersText = ({ organizations, keys, projects }: KnownIds): string => `
  with used as materialized (select distinct organization, key, project from usage_daily),
    known as materialized (${organizations}), own_keys as materialized (${keys}),
    own_projects as materialized (${projects}),
    found as (
      select 'key' as what, u.organization, u.key as code, c.id, k.id as owned, k.organization_id
      from used u left join usage_ids c on c.code = u.key left join own_keys k on k.id = c.id
      union select 'project', u.organization, u.project, c.id, p.id, p.organization_id
      from used u left join usage_ids c on c.code = u.project left join own_projects p on p.id = c.id)
  select coalesce(o.id, '${unknownOrganization}')::text as organization_id, f.id::text as id,
    case when f.id is null then format('%s %s', f.what, f.code) when f.owned is null then 'there is no such ' || f.what
      else format('%s of another organization', f.what) end as problem,
    case when f.id is null then 'unknown_code' else f.what || '_differs' end as kind
  from found f left join usage_ids o on o.code = f.organization left join known n on n.id = o.id
  where ($1::uuid is null or o.id = $1::uuid)
    and (f.id is null or f.organization_id <> o.id or (f.owned is null and n.id is not null))`;
