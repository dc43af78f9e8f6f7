/** Every organization, and every project, and whose. */
export const organizationIdsSql = 'select id from organizations';
export const projectOwnersSql = 'select id, organization_id from projects';
