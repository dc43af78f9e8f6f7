import { formatId, uuidv7 } from '#base/id.ts';
import { absentLists, absentUsage } from '#edge/api/openai/organization-absent.ts';

/** Every route of the API, who may ask it, and what those get who may. */

/** `public` needs no key, `member` any; `person` is a signed-in member, or an `admin`, as a management key. */
export type Level = 'public' | 'member' | 'person' | 'admin' | 'platform';

export interface Ask {
  readonly path: string;
  readonly body?: object;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Scene {
  /** The caller's own. */
  readonly organizationId: string;
  /** A cluster of his organization. */
  readonly clusterId: string;
}

export interface RoleRow {
  /** As the document has it. */
  readonly route: string;
  readonly level: Level;
  /** Status for a caller with the right: 404 where the row names a missing object. */
  readonly status: number;
  readonly ask: (scene: Scene) => Ask;
  /** OpenAI's own routes take query parameters that they do not know. */
  readonly isOpenai?: boolean;
}

export const nobody = (
  prefix:
    | 'key'
    | 'user'
    | 'proj'
    | 'org'
    | 'cluster'
    | 'run'
    | 'rate'
    | 'conv'
    | 'inv'
    | 'svc_acct'
    | 'wh'
    | 'dlv'
    | 'budget'
    | 'file'
    | 'batch',
): string => formatId(prefix, uuidv7());
const ofNobody = `/v1/organization/projects/${nobody('proj')}/service_accounts/${nobody('svc_acct')}`;
const dry = { 'x-headgate-dry-run': 'true' };
const chat = { model: 'chat', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 8 };

export const at = (path: string, body?: object, headers?: Readonly<Record<string, string>>) => (): Ask => ({
  path,
  ...(body !== undefined && { body }),
  ...(headers !== undefined && { headers }),
});

/** A row of a route without parameters in its path. */
export function row(route: string, level: Level, status: number, body?: object): RoleRow {
  return { route, level, status, ask: at(route.slice(route.indexOf(' ') + 1), body) };
}

function openai(route: string, status: number, body?: object): RoleRow {
  const path = route.slice(route.indexOf(' ') + 1).replace('{id}', 'chat');
  return { route, level: 'member', status, ask: at(path, body, dry), isOpenai: true };
}

function own(route: string, status: number): RoleRow {
  const path = route.slice(route.indexOf(' ') + 1).replace('{id}', uuidv7());
  return { route, level: 'member', status, ask: at(path) };
}

/** A row of a route with an id that nobody has. */
export function missing(route: string, level: Level, id: string, body?: object): RoleRow {
  return { route, level, status: 404, ask: at(route.slice(route.indexOf(' ') + 1).replace('{id}', id), body) };
}

const projects = ['/v1', '/api/v1'].flatMap((prefix): RoleRow[] => [
  row(`GET ${prefix}/projects`, 'member', 200),
  {
    ...row(`POST ${prefix}/projects`, 'admin', 201),
    ask: () => ({ path: `${prefix}/projects`, body: { name: uuidv7() } }),
  },
  missing(`GET ${prefix}/projects/{id}`, 'member', nobody('proj')),
  missing(`PUT ${prefix}/projects/{id}`, 'admin', nobody('proj'), { name: 'x' }),
  missing(`PATCH ${prefix}/projects/{id}`, 'admin', nobody('proj'), { name: 'x' }),
  missing(`POST ${prefix}/projects/{id}/archive`, 'admin', nobody('proj')),
]);

const users = ['/v1', '/api/v1'].flatMap((prefix): RoleRow[] => [
  row(`GET ${prefix}/users`, 'member', 200),
  {
    ...row(`POST ${prefix}/users`, 'admin', 201),
    ask: () => ({
      path: `${prefix}/users`,
      body: { name: 'Ada', email: `${uuidv7()}@example.com`, password: 'correct horse' },
    }),
  },
  missing(`GET ${prefix}/users/{id}`, 'member', nobody('user')),
  missing(`PUT ${prefix}/users/{id}`, 'member', nobody('user'), { name: 'x' }),
  missing(`DELETE ${prefix}/users/{id}`, 'admin', nobody('user')),
  missing(`POST ${prefix}/users/{id}/reset-link`, 'admin', nobody('user')),
]);

const batches: readonly RoleRow[] = [
  // A file that is no form: a caller who may send one gets an error that says so.
  row('POST /v1/files', 'member', 415, {}),
  row('GET /v1/files', 'member', 200),
  missing('GET /v1/files/{id}', 'member', nobody('file')),
  missing('DELETE /v1/files/{id}', 'member', nobody('file')),
  missing('GET /v1/files/{id}/content', 'member', nobody('file')),
  row('POST /v1/batches', 'member', 404, {
    input_file_id: nobody('file'),
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  }),
  row('GET /v1/batches', 'member', 200),
  missing('GET /v1/batches/{id}', 'member', nobody('batch')),
  missing('POST /v1/batches/{id}/cancel', 'member', nobody('batch')),
];

const identities: readonly RoleRow[] = [
  missing('GET /v1/users/{id}/identities', 'member', nobody('user')),
  {
    ...missing('DELETE /v1/users/{id}/identities', 'member', nobody('user')),
    ask: at(`/v1/users/${nobody('user')}/identities?issuer=https://id.example.com&subject=x`),
  },
];

const invitations: readonly RoleRow[] = [
  row('GET /v1/invitations', 'admin', 200),
  {
    ...row('POST /v1/invitations', 'admin', 201),
    ask: () => ({ path: '/v1/invitations', body: { email: `${uuidv7()}@example.com` } }),
  },
  missing('DELETE /v1/invitations/{id}', 'admin', nobody('inv')),
];

const webhooks: readonly RoleRow[] = [
  row('GET /v1/webhooks', 'admin', 200),
  row('POST /v1/webhooks', 'admin', 400, { url: 'http://example.com' }),
  missing('GET /v1/webhooks/{id}', 'admin', nobody('wh')),
  missing('PATCH /v1/webhooks/{id}', 'admin', nobody('wh'), { enabled: false }),
  missing('DELETE /v1/webhooks/{id}', 'admin', nobody('wh')),
  missing('POST /v1/webhooks/{id}/rotate', 'admin', nobody('wh'), {}),
  missing('POST /v1/webhooks/{id}/test', 'admin', nobody('wh')),
  missing('GET /v1/webhooks/{id}/deliveries', 'admin', nobody('wh')),
  {
    ...missing('POST /v1/webhooks/{id}/deliveries/{delivery}/replay', 'admin', nobody('wh')),
    ask: at(`/v1/webhooks/${nobody('wh')}/deliveries/${nobody('dlv')}/replay`),
  },
];

function ofCluster(route: string, level: Level, status: number, body?: object): RoleRow {
  const path = route
    .slice(route.indexOf(' ') + 1)
    .replace('{node}', 'none')
    .replace('{generation}', '1');
  const ask = ({ clusterId }: Scene): Ask => ({
    path: path.replace('{id}', clusterId),
    ...(body !== undefined && { body }),
  });
  return { route, level, status, ask };
}

const clusters: readonly RoleRow[] = [
  row('GET /v1/clusters', 'member', 200),
  {
    ...row('POST /v1/clusters', 'platform', 201),
    ask: () => ({ path: '/v1/clusters', body: { name: `c-${uuidv7()}` } }),
  },
  ofCluster('GET /v1/clusters/{id}', 'member', 200),
  ofCluster('PATCH /v1/clusters/{id}', 'platform', 200, { public_domain: 'apps.example.com' }),
  ofCluster('POST /v1/clusters/{id}/access-identity/rotate', 'platform', 200, {}),
  ofCluster('POST /v1/clusters/{id}/nodes', 'platform', 400, {}),
  ofCluster('PATCH /v1/clusters/{id}/nodes/{node}', 'platform', 404, { gpus: 8 }),
  ofCluster('DELETE /v1/clusters/{id}/nodes/{node}', 'platform', 404),
  ofCluster('POST /v1/clusters/{id}/nodes/{node}/allocate', 'platform', 404, {}),
  ofCluster('POST /v1/clusters/{id}/nodes/{node}/release', 'platform', 404, {}),
  ofCluster('GET /v1/clusters/{id}/allocations', 'member', 200),
  ofCluster('POST /v1/clusters/{id}/nodes/{node}/allocations/{generation}/amend', 'platform', 404, {
    allocated_at: '2026-03-10T10:00:00Z',
    reason: 'x',
  }),
  ofCluster('POST /v1/clusters/{id}/nodes/{node}/allocations/{generation}/void', 'platform', 404, { reason: 'x' }),
  ofCluster('POST /v1/clusters/{id}/nodes/{node}/heartbeat', 'platform', 404),
  ofCluster('DELETE /v1/clusters/{id}', 'platform', 204),
];

function ofStack(route: string, level: Level, body?: object): RoleRow {
  return { route, level, status: 404, ask: at(route.slice(route.indexOf(' ') + 1).replace('{name}', 'none'), body) };
}

const stacks: readonly RoleRow[] = [
  row('GET /v1/stacks', 'member', 200),
  row('POST /v1/stacks', 'person', 400, {}),
  ofStack('GET /v1/stacks/{name}', 'member'),
  ofStack('GET /v1/stacks/{name}/download', 'member'),
  ofStack('GET /v1/stacks/{name}/icon', 'member'),
  ofStack('GET /v1/stacks/{name}/versions', 'member'),
  ofStack('GET /v1/stacks/{name}/diff', 'member'),
  ofStack('POST /v1/stacks/{name}/revert', 'person', {}),
  ofStack('PATCH /v1/stacks/{name}', 'person', { title: 'x' }),
  ofStack('DELETE /v1/stacks/{name}', 'person'),
  ofStack('POST /v1/stacks/{name}/apply', 'person', { cluster_id: nobody('cluster') }),
];

const runs: readonly RoleRow[] = [
  row('GET /v1/runs', 'member', 200),
  row('GET /v1/runner', 'person', 200),
  missing('GET /v1/runs/{id}', 'member', nobody('run')),
  missing('GET /v1/runs/{id}/logs', 'member', nobody('run')),
  missing('POST /v1/runs/{id}/open', 'member', nobody('run')),
  missing('GET /v1/runs/{id}/plan', 'member', nobody('run')),
  ...['confirm', 'discard', 'cancel'].map((act) => missing(`POST /v1/runs/{id}/${act}`, 'person', nobody('run'))),
  missing('POST /v1/runs/{id}/retry', 'person', nobody('run')),
  missing('POST /v1/runs/{id}/destroy', 'person', nobody('run')),
  missing('PATCH /v1/runs/{id}', 'person', nobody('run'), { expires_at: null }),
  missing('POST /v1/runs/{id}/drift-check', 'person', nobody('run')),
  missing('POST /v1/runs/{id}/forget', 'platform', nobody('run')),
];

const booking = (path: string, fields: object) => (): Ask => ({ path, body: { ...fields, reference: uuidv7() } });

export const roleRows: readonly RoleRow[] = [
  openai('POST /v1/chat/completions', 200, chat),
  openai('POST /v1/completions', 400, { ...chat, model: 'none' }),
  openai('POST /v1/responses', 400, { model: 'none', input: 'x' }),
  openai('POST /v1/responses/input_tokens', 400, { model: 'none', input: 'x' }),
  openai('GET /v1/responses/{id}', 404),
  openai('DELETE /v1/responses/{id}', 404),
  openai('GET /v1/responses/{id}/input_items', 404),
  openai('POST /v1/responses/{id}/cancel', 404),
  openai('POST /v1/messages', 400, { model: 'none', messages: [] }),
  openai('POST /v1/messages/count_tokens', 400, { model: 'none', messages: [] }),
  openai('POST /v1/tokenize', 400, { model: 'none', prompt: 'x' }),
  openai('POST /v1/detokenize', 400, { model: 'none', tokens: [1] }),
  openai('POST /v1/embeddings', 400, { model: 'none', input: 'x' }),
  openai('POST /v1/rerank', 400, { model: 'none', query: 'x', documents: ['x'] }),
  openai('POST /v1/score', 400, { model: 'none', text_1: 'x', text_2: 'x' }),
  ...['audio/transcriptions', 'audio/translations', 'audio/speech'].map((path) => openai(`POST /v1/${path}`, 501, {})),
  ...['generations', 'edits', 'variations'].map((path) => openai(`POST /v1/images/${path}`, 501, {})),
  openai('POST /v1/moderations', 501, {}),
  openai('GET /v1/models', 200),
  openai('GET /v1/models/{id}', 200),
  row('GET /v1/pricing', 'public', 200),
  row('POST /v1/keys/report', 'public', 400, { secret: 'no key' }),
  row('GET /v1/key', 'member', 200),
  row('GET /v1/keys', 'admin', 200),
  row('POST /v1/keys', 'admin', 201, {}),
  row('POST /v1/imports', 'platform', 200, { dry_run: true, project: { imported_from: 'team', name: 'Team' } }),
  missing('GET /v1/keys/{id}', 'admin', nobody('key')),
  missing('PATCH /v1/keys/{id}', 'admin', nobody('key'), { name: 'x' }),
  missing('DELETE /v1/keys/{id}', 'admin', nobody('key')),
  missing('POST /v1/keys/{id}/rotate', 'admin', nobody('key'), {}),
  ...projects,
  ...users,
  ...identities,
  ...invitations,
  row('GET /v1/organizations', 'platform', 200),
  row('POST /v1/organizations', 'platform', 201, { name: 'Another' }),
  {
    ...row('GET /v1/organizations/{id}', 'admin', 200),
    ask: ({ organizationId }) => ({ path: `/v1/organizations/${organizationId}` }),
  },
  {
    ...row('PATCH /v1/organizations/{id}', 'admin', 200),
    ask: ({ organizationId }) => ({ path: `/v1/organizations/${organizationId}`, body: { name: 'Renamed' } }),
  },
  missing('DELETE /v1/organizations/{id}', 'platform', nobody('org')),
  row('GET /v1/wallet', 'member', 200),
  row('GET /v1/wallet/days', 'member', 200),
  row('GET /v1/budgets', 'member', 200),
  {
    ...row('POST /v1/budgets', 'admin', 201),
    ask: () => ({
      path: '/v1/budgets',
      body: { scope: { type: 'user', id: uuidv7() }, period: 'daily', amount: '1' },
    }),
  },
  missing('GET /v1/budgets/{id}', 'member', nobody('budget')),
  missing('PATCH /v1/budgets/{id}', 'admin', nobody('budget'), { amount: '1' }),
  missing('POST /v1/budgets/{id}/reset', 'admin', nobody('budget')),
  missing('DELETE /v1/budgets/{id}', 'admin', nobody('budget')),
  row('GET /v1/wallet/ledger', 'member', 200),
  { ...row('POST /v1/wallet/credits', 'platform', 201), ask: booking('/v1/wallet/credits', { amount: '1' }) },
  {
    ...row('POST /v1/wallet/adjustments', 'platform', 201),
    ask: booking('/v1/wallet/adjustments', { amount: '0.5', reason: 'too little' }),
  },
  { ...row('GET /v1/wallet/statements/{month}', 'admin', 200), ask: at('/v1/wallet/statements/2026-01') },
  row('GET /v1/statement-key', 'public', 404),
  row('GET /v1/audit', 'admin', 200),
  ...batches,
  ...['rejected', 'requests', 'summary'].map((name) => own(`GET /v1/usage/${name}`, 200)),
  own('GET /v1/usage/requests/{id}', 404),
  own('GET /v1/usage/requests/{id}/content', 404),
  own('DELETE /v1/usage/requests/{id}/content', 404),
  ...['usage/completions', 'usage/embeddings', 'costs'].map((name) => ({
    ...row(`GET /v1/organization/${name}`, 'admin', 200),
    ask: at(`/v1/organization/${name}?start_time=0`),
  })),
  ...absentUsage.map((path) => ({ ...row(`GET ${path}`, 'admin', 200), ask: at(`${path}?start_time=0`) })),
  ...['GET', 'POST'].map((method): RoleRow => {
    const rateLimits = '/v1/organization/projects/{id}/rate_limits';
    const isSet = method === 'POST';
    return {
      ...missing(`${method} ${rateLimits}${isSet ? '/{rate_limit}' : ''}`, 'admin', nobody('proj')),
      ask: at(
        `/v1/organization/projects/${nobody('proj')}/rate_limits${isSet ? '/rl-chat' : ''}`,
        isSet ? {} : undefined,
      ),
    };
  }),
  ...absentLists.map((path) => ({
    ...row(`GET ${path}`, 'admin', 200),
    ask: at(path.replaceAll(/\{\w+\}/g, () => uuidv7())),
  })),
  row('GET /v1/organization/projects', 'admin', 200),
  {
    ...row('POST /v1/organization/projects', 'admin', 200),
    ask: () => ({ path: '/v1/organization/projects', body: { name: `p-${uuidv7()}` } }),
  },
  missing('GET /v1/organization/projects/{id}', 'admin', nobody('proj')),
  missing('POST /v1/organization/projects/{id}', 'admin', nobody('proj'), { name: 'x' }),
  missing('POST /v1/organization/projects/{id}/archive', 'admin', nobody('proj')),
  row('GET /v1/organization/users', 'admin', 200),
  missing('GET /v1/organization/users/{id}', 'admin', nobody('user')),
  row('GET /v1/organization/invites', 'admin', 200),
  row('POST /v1/organization/admin_api_keys', 'admin', 200, { name: 'Another' }),
  row('GET /v1/organization/admin_api_keys', 'admin', 200),
  missing('GET /v1/organization/admin_api_keys/{id}', 'admin', nobody('key')),
  missing('DELETE /v1/organization/admin_api_keys/{id}', 'admin', nobody('key')),
  missing('GET /v1/organization/projects/{id}/api_keys', 'admin', nobody('proj')),
  ...['GET', 'DELETE'].map((method) => ({
    ...missing(`${method} /v1/organization/projects/{id}/api_keys/{key}`, 'admin', nobody('proj')),
    ask: at(`/v1/organization/projects/${nobody('proj')}/api_keys/${nobody('key')}`),
  })),
  missing('GET /v1/organization/projects/{id}/service_accounts', 'admin', nobody('proj')),
  missing('POST /v1/organization/projects/{id}/service_accounts', 'admin', nobody('proj'), { name: 'x' }),
  ...['GET', 'POST', 'DELETE'].map((method) => ({
    ...missing(`${method} /v1/organization/projects/{id}/service_accounts/{account}`, 'admin', nobody('proj')),
    ask: at(ofNobody, method === 'POST' ? { name: 'x' } : undefined),
  })),
  {
    ...missing('POST /v1/organization/projects/{id}/service_accounts/{account}/api_keys', 'admin', nobody('proj')),
    ask: at(`${ofNobody}/api_keys`, {}),
  },
  ...webhooks,
  row('GET /v1/admin/organizations', 'platform', 200),
  row('GET /v1/admin/quarantine', 'platform', 200),
  missing('GET /v1/admin/quarantine/{id}', 'platform', uuidv7()),
  missing('POST /v1/admin/quarantine/{id}/retry', 'platform', uuidv7()),
  missing('POST /v1/admin/quarantine/{id}/discard', 'platform', uuidv7(), { reason: 'x' }),
  row('GET /v1/admin/reconcile', 'platform', 200),
  row('GET /v1/admin/holds', 'platform', 200),
  missing('POST /v1/admin/holds/{id}/release', 'platform', uuidv7(), { reason: 'x' }),
  row('GET /v1/admin/engines', 'platform', 200),
  missing('GET /v1/admin/engines/{id}', 'platform', 'none'),
  missing('GET /v1/admin/engines/{id}/logs', 'platform', 'none'),
  missing('GET /v1/admin/engines/{id}/history', 'platform', 'none'),
  missing('GET /v1/admin/engines/{id}/file', 'platform', 'none'),
  row('POST /v1/admin/engine-files/check', 'platform', 200, { name: 'a.yaml', text: 'version: 1' }),
  missing('GET /v1/admin/engines/{id}/requests', 'platform', 'none'),
  missing('POST /v1/admin/engines/{id}/requests/{request_id}/cancel', 'platform', 'none'),
  missing('POST /v1/admin/engines/{id}/start', 'platform', 'none'),
  missing('POST /v1/admin/engines/{id}/stop', 'platform', 'none'),
  missing('POST /v1/admin/engines/{id}/restart', 'platform', 'none'),
  missing('POST /v1/admin/engines/{id}/reset', 'platform', 'none'),
  row('POST /v1/admin/engines/reload', 'platform', 200),
  row('GET /v1/admin/hosts', 'platform', 200),
  row('GET /v1/admin/unused-storage', 'platform', 200),
  missing('DELETE /v1/admin/unused-storage/{name}', 'platform', 'none'),
  ...clusters,
  ...stacks,
  ...runs,
];
