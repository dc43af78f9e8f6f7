/** Selects every key that ever existed, with its organization. */
export const keyOwnersSql = 'select id, organization_id from api_keys';
