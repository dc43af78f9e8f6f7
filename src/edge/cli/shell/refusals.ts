import type { ClientConfig } from '#base/config/config.ts';
import { anyErrorSchema } from '#edge/contract/errors.ts';

/** Describes errors between a command and the gateway, and how the user can fix them. */

/**
 * Describes why the gateway is unreachable, and what to do. @param error as Node's sockets and the openai package throw
 * it
 */
export function unreachableText({ url, keySource, environment }: ClientConfig, error: unknown): string {
  const code = codeOfSocket(error);
  const named =
    (environment['HEADGATE_URL'] ?? '') === ''
      ? 'HEADGATE_URL or "headgate login" sets the address'
      : 'HEADGATE_URL sets the address';
  // A URL that was just typed is in no variable.
  const where = keySource === 'typed' ? 'Nothing was saved' : named;
  return `${url} is unreachable (${code}): ${causeOf(url, code)} ${where}`;
}

/** Describes an answer that no gateway gives. */
export const strangerText = ({ url }: ClientConfig): string =>
  `${url} did not answer like a Headgate gateway; HEADGATE_URL sets the address`;

/**
 * Describes a redirect. The client never follows one: neither the key nor the request goes to an address that nobody
 * named.
 */
export function elsewhereText({ url }: ClientConfig, location: string | null | undefined): string {
  const found = URL.parse(location ?? '', url);
  const where = found === null ? 'elsewhere' : `to ${found.origin}`;
  return `${url} redirects ${where}, and nothing was sent there; if the gateway is there, set HEADGATE_URL to it`;
}

function codeOfSocket(error: unknown): string {
  if (typeof error === 'string') return error;
  if (error instanceof AggregateError && error.errors.length > 0) return codeOfSocket(error.errors[0]);
  if (!(error instanceof Error)) return String(error);
  return 'code' in error ? String(error.code) : error.message;
}

const certificateCodes = /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_|CERT_UNTRUSTED)/;

function causeOf(url: string, code: string): string {
  const host = URL.parse(url)?.hostname ?? url;
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return `the host ${host} has no known address; check its name.`;
  if (certificateCodes.test(code)) {
    return 'this machine does not trust its certificate; add the certificate that signed it with NODE_EXTRA_CA_CERTS=FILE.pem.';
  }
  if (code === 'CERT_HAS_EXPIRED') return 'its certificate has expired; its operator must renew it.';
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') return `its certificate is not for ${host}; check the name.`;
  if (code === 'EPROTO' || code === 'ERR_SSL_WRONG_VERSION_NUMBER')
    return 'it does not speak TLS; try http:// instead of https://.';
  if (code.startsWith('HPE_')) return 'it does not speak HTTP; try https:// instead of http://.';
  if (code === 'ECONNRESET') {
    const other = url.startsWith('http:') ? '; try https:// instead of http://.' : '.';
    return `it closed the connection${other}`;
  }
  if (code === 'ETIMEDOUT') return 'it did not answer in time.';
  return 'is the gateway running?';
}

/** Hints at the command that lists valid names, by path. */
const lists: readonly (readonly [path: string, hint: string])[] = [
  ['/v1/admin/holds/', '"headgate holds ls" lists the holds of stopped gateways'],
  ['/v1/admin/engines/', '"headgate engines ls" lists the engines'],
  ['/v1/batches/', '"headgate batches ls" lists the batches'],
  ['/v1/budgets/', '"headgate budgets ls" lists the budgets'],
  ['/v1/clusters/', '"headgate clusters ls" lists the clusters'],
  ['/v1/files/', '"headgate files ls" lists the files'],
  ['/v1/keys/', '"headgate keys ls" lists the keys'],
  ['/v1/stacks/', '"headgate stacks ls" lists the stacks'],
  ['/v1/runs/', '"headgate runs ls" lists the runs'],
  ['/v1/users/', '"headgate users ls" lists the users'],
  ['/v1/projects/', '"headgate projects ls" lists the projects'],
  ['/v1/webhooks/', '"headgate webhooks ls" lists the webhooks'],
  ['/v1/organizations/', '"headgate orgs ls" lists the organizations'],
];

export interface Refusal {
  readonly method: string;
  readonly status: number;
  readonly path: string;
  readonly body: string;
}

/** Returns the gateway's own message, with a hint at the fix if the user can fix the error. */
export function refusalText(config: ClientConfig, refusal: Refusal): string {
  const message = readError(refusal.body)?.text ?? `the gateway answered with status ${refusal.status}`;
  const hint = hintOf(config, refusal, message);
  return hint === null ? message : `${message.replace(/\.$/, '')}; ${hint}`;
}

function hintOf(config: ClientConfig, refusal: Refusal, message: string): string | null {
  switch (refusal.status) {
    case 401:
      return invalidKeyHint(config);
    case 402:
      return creditHint(message);
    case 403:
      return neededKeyHint(config, message);
    case 404:
      return listHint(refusal.path, message);
    case 400:
    case 422:
      return inputHint(refusal.path, message);
    case 409:
      return runHint(refusal, message);
    default:
      return null;
  }
}

function invalidKeyHint({ keySource, url }: ClientConfig): string {
  if (keySource === 'typed') return 'nothing was saved';
  return keySource === 'login'
    ? `the key of your login at ${url} is no longer valid: run "headgate login" with another key`
    : 'set HEADGATE_API_KEY to a valid key';
}

/** Returns a hint for an empty wallet only: the message about a budget says when the budget resets. */
function creditHint(message: string): string | null {
  if (!message.startsWith('The balance')) return null;
  const more = '"headgate wallet credit USD --reference TEXT"';
  return `"headgate wallet" shows the balance, and a platform administrator adds credit with ${more}`;
}

/**
 * Returns which key the request needs, by the gateway's message, and how to get one. Another key does not help with
 * other errors, such as a suspended organization.
 */
function neededKeyHint({ keySource, url }: ClientConfig, message: string): string | null {
  const key = keySource === 'login' ? `the key of your login at ${url}` : 'the key in HEADGATE_API_KEY';
  const use = keySource === 'login' ? 'and save it with "headgate login"' : 'and set HEADGATE_API_KEY to it';
  if (/platform administrator|administrators of the platform/.test(message)) {
    return (
      `${key} is not one; use the key that the first start printed, or create one with "headgate keys recover" on the ` +
      `gateway's machine, ${use}`
    );
  }
  if (!message.includes('scope "management"')) return null;
  return (
    `${key} has scope "inference"; have a manager of the organization run "headgate keys create NAME --scope ` +
    `management", ${use}`
  );
}

function listHint(path: string, message: string): string | null {
  // The missing resource may be of another kind than the path.
  const noun = /^There is no such (\w+)\.$/.exec(message)?.[1];
  // The run exists, and has no plan.
  if (noun === undefined && path.endsWith('/plan')) return null;
  const found = lists.find(([begin]) => begin === `/v1/${noun}s/`) ?? lists.find(([begin]) => path.startsWith(begin));
  return found?.[1] ?? null;
}

function inputHint(path: string, message: string): string | null {
  if (message.includes('organization_id: must be the id')) return '"headgate orgs ls" lists the ids';
  if (!/^\/v1\/stacks\/[^/]+\/apply$/.test(path) || !message.startsWith('inputs.')) return null;
  return '"headgate stacks show STACK" lists the inputs; set them with "--input NAME=VALUE" or "--inputs FILE.json"';
}

const goesOn = ['PENDING', 'PLANNING', 'APPLYING', 'DESTROYING', 'CANCELING'];

const plannedOnly = 'only a PLANNED run can be confirmed or discarded: "headgate runs ls --status PLANNED" lists them';
const appliedOnly =
  'only an APPLIED run has an expiry and drift checks: "headgate runs ls --status APPLIED" lists them';

/** Hints for orders that are explained in the same way for each status. */
const allowedRuns: ReadonlyMap<string, string> = new Map([
  ['cancel', 'only a pending or active run can be canceled'],
  ['confirm', plannedOnly],
  ['discard', plannedOnly],
  ['drift-check', appliedOnly],
  ['change', appliedOnly],
  [
    'forget',
    'another run of its stack is active there: "headgate runs ls" lists it, "headgate runs cancel" cancels it',
  ],
]);

/** Returns what can be done with a run whose status does not allow an order. */
function runHint({ method, path }: Refusal, message: string): string | null {
  const parts = /^\/v1\/runs\/([^/]+)(?:\/([\w-]+))?$/.exec(path) ?? [];
  const [, id = '', order = method === 'PATCH' ? 'change' : ''] = parts;
  const [, status = ''] = /^The run is ([A-Z]+)\.$/.exec(message) ?? [];
  if (order === '' || status === '') return null;
  const allowed = allowedRuns.get(order);
  if (allowed !== undefined) return allowed;
  if (status === 'CANCELING') return `it is stopping: "headgate runs logs -f ${id}" waits for its end`;
  if (goesOn.includes(status))
    return `it has not ended: "headgate runs logs -f ${id}" waits for its end, "headgate runs cancel ${id}" cancels it`;
  if (order === 'destroy') return 'it has no resources left to destroy';
  if (status === 'DESTROYED') return 'its resources are destroyed: "headgate runs apply" creates them again';
  return 'only a failed or canceled run can be retried: "headgate runs apply" applies the stack again';
}

/** Returns the gateway's error code; null if the answer has none. */
export const codeOf = (body: string): string | null => readError(body)?.code ?? null;

function readError(body: string): { readonly text: string; readonly code: string | null } | null {
  try {
    const parsed = anyErrorSchema.safeParse(JSON.parse(body));
    if (!parsed.success) return null;
    const { message, code = null, details = [] } = parsed.data.error;
    // The message lists only the first few details.
    const text = details.length < 2 ? message : details.map((one) => `${one.field}: ${one.message}`).join('; ');
    return { text, code };
  } catch {
    return null;
  }
}
