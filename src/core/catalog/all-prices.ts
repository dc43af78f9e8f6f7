/** Selects all price versions; prices are in pico-dollars per token. */
export const pricesSql = `select id, model_id, tier, input_per_mtok_micro_usd as input_price,
    cached_input_per_mtok_micro_usd as cached_price, output_per_mtok_micro_usd as output_price, currency from price_versions`;
