import type { KeyTable } from './keys.ts';

/** Columns of LiteLLM's tables that are not carried over, with the reason; null for columns that are handled. */

const bookkeeping = {
  created_at: null,
  created_by: null,
  updated_at: null,
  updated_by: null,
  settings_updated_at: null,
};
const handled = {
  ...bookkeeping,
  spend: null,
  models: null,
  team_id: null,
  blocked: null,
  max_budget: null,
  budget_duration: null,
  budget_reset_at: null,
};

const soft = 'create a soft budget with "headgate budgets create --mode soft"';
const perModel = 'create it with "headgate budgets create" and --models';
const unchanged = 'Headgate does not check or change requests and answers';
const daily = 'set a monthly token limit with "headgate keys edit"';
const groups = 'list the models of the group with "headgate keys edit --models"';
const permissions = 'Headgate has no permissions for tools, stores and agents';
const routing = 'engine files have aliases and fallbacks for all keys';
const rotation = 'rotate the key with "headgate keys rotate"';
const metadata = 'Headgate stores no metadata of keys and projects';

const common = {
  metadata,
  tpd_limit: daily,
  policies: unchanged,
  access_group_ids: groups,
  model_spend: 'the ledger begins with the first request here',
  model_max_budget: perModel,
  budget_limits: perModel,
  object_permission_id: permissions,
  router_settings: routing,
};

export const keyColumns: KeyTable = {
  ...handled,
  ...common,
  token: null,
  key_name: null,
  key_alias: null,
  expires: null,
  max_parallel_requests: null,
  tpm_limit: null,
  rpm_limit: null,
  budget_id: null,
  allowed_routes: null,
  key_type: null,
  last_active: null,
  rotation_count: null,
  last_rotation_at: null,
  total_spend: null,
  soft_budget_cooldown: null,
  user_id: 'the key belongs to a service account of its project',
  organization_id: 'all keys come into one organization',
  project_id: 'limits and budgets of LiteLLM projects are not imported',
  agent_id: 'Headgate has no agents',
  aliases: routing,
  config: 'Headgate has no settings of requests for single keys',
  permissions,
  allowed_cache_controls: 'set "cache_responses" of the key',
  budget_fallbacks: routing,
  auto_rotate: rotation,
  rotation_interval: rotation,
  key_rotation_at: rotation,
};

const perKey = 'Headgate limits keys, and models of a project: "headgate projects limits"';
const people = 'invite people with "headgate users invite"';

export const teamColumns: KeyTable = {
  ...handled,
  ...common,
  team_alias: null,
  organization_id: 'all teams come into one organization',
  soft_budget: soft,
  max_parallel_requests: perKey,
  tpm_limit: perKey,
  rpm_limit: perKey,
  admins: people,
  members: people,
  members_with_roles: people,
  team_member_permissions: people,
  default_team_member_models: people,
  model_id: routing,
  allow_team_guardrail_config: unchanged,
};

export const tierColumns: KeyTable = {
  ...bookkeeping,
  budget_id: null,
  max_budget: null,
  budget_duration: null,
  budget_reset_at: null,
  tpm_limit: null,
  rpm_limit: null,
  soft_budget: soft,
  max_parallel_requests: 'LiteLLM does not apply it to keys either',
  tpd_limit: daily,
  model_max_budget: perModel,
  allowed_models: groups,
  temp_budget_increase: 'raise the budget with "headgate budgets edit"',
  temp_budget_expiry: null,
};

/** Tables whose rows are only counted, with what they are and the reason. */
export const otherTables = {
  LiteLLM_OrganizationTable: ['organizations', 'all teams and keys come into one organization of Headgate'],
  LiteLLM_ProjectTable: ['projects', 'their keys come into the project of their team'],
  LiteLLM_UserTable: ['internal users, with their budgets', people],
  LiteLLM_EndUserTable: ['end users', 'create their budgets with "headgate budgets create --user"'],
  LiteLLM_TeamMembership: ['members of teams, with their budgets', people],
  LiteLLM_TagTable: ['tags', 'Headgate has no tags'],
  LiteLLM_DeprecatedVerificationToken: [
    'secrets in the grace period of a rotation',
    'only the current secret of a key is imported',
  ],
  LiteLLM_JWTKeyMapping: ['mappings of JWTs to keys', 'Headgate accepts no JWTs as keys'],
} as const;
