export { absentOf, registerOrganizationAbsentRoutes } from './organization-absent.ts';
export { registerOrganizationKeyRoutes } from './organization-keys.ts';
export { registerOrganizationPeopleRoutes } from './organization-people.ts';
export { registerOrganizationProjectRoutes } from './organization-projects.ts';
export { type OrganizationRateLimitParts, registerOrganizationRateLimitRoutes } from './organization-rate-limits.ts';
export { registerServiceAccountRoutes } from './organization-service-accounts.ts';
export { registerOrganizationUsageRoutes } from './organization-usage.ts';
