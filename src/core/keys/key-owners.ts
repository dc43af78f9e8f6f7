/** Every key that there was, and whose. */
export const keyOwnersSql = 'select id, organization_id from api_keys';
