/** Selects every organization, and every project with its organization. */
export const organizationIdsSql = 'select id from organizations';
export const projectOwnersSql = 'select id, organization_id from projects';
