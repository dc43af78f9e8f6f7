import { z } from 'zod';
import type { ClientConfig } from '#base/config.ts';

/** What went wrong between a command and the gateway, and how whoever typed the command mends it. */

/** Why nobody answers, and what to do. @param error as Node's sockets and the openai package throw it */
export function unreachableText({ url, keySource, environment }: ClientConfig, error: unknown): string {
  const code = codeOfSocket(error);
  const named =
    (environment['HEADGATE_URL'] ?? '') === '' ? 'HEADGATE_URL or "headgate login" names it' : 'HEADGATE_URL names it';
  // What was typed a moment ago is in no variable.
  const where = keySource === 'typed' ? 'nothing was kept' : named;
  return `${url} cannot be reached (${code}): ${causeOf(url, code)} ${where}`;
}

/** An answer that no gateway gives. */
export const strangerText = ({ url }: ClientConfig): string =>
  `${url} did not answer as Headgate does; HEADGATE_URL names the gateway`;

/** A redirect, which nothing is sent after: neither the key nor what is asked goes where nobody has named. */
export function elsewhereText({ url }: ClientConfig, location: string | null | undefined): string {
  const found = URL.parse(location ?? '', url);
  const where = found === null ? 'elsewhere' : `to ${found.origin}`;
  return `${url} leads ${where}, and nothing was sent there: where the gateway is there, HEADGATE_URL must name it`;
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
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN')
    return `no address is known for the host ${host}, is its name right?`;
  if (certificateCodes.test(code)) {
    return 'its certificate is of nobody whom this machine trusts, NODE_EXTRA_CA_CERTS=FILE.pem adds the one that signed it;';
  }
  if (code === 'CERT_HAS_EXPIRED') return 'its certificate has expired, whoever runs it renews it;';
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') return `its certificate is not for ${host}, is the name right?`;
  if (code === 'EPROTO' || code === 'ERR_SSL_WRONG_VERSION_NUMBER')
    return 'it does not speak TLS, is it http:// in place of https://?';
  if (code.startsWith('HPE_')) return 'it does not speak HTTP, is it https:// in place of http://?';
  if (code === 'ECONNRESET') {
    const other = url.startsWith('http:') ? ', is it https:// in place of http://?' : ';';
    return `it ended the connection${other}`;
  }
  if (code === 'ETIMEDOUT') return 'it did not answer in time;';
  return 'is the gateway running?';
}

/** Where the names of what is not there can be had. */
const lists: readonly (readonly [path: string, hint: string])[] = [
  ['/v1/admin/holds/', '"headgate holds ls" lists those that were left behind'],
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

/** The gateway's own sentence, and how to mend it where that is for whoever typed the command. */
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
      return runHint(refusal.path, message);
    default:
      return null;
  }
}

function invalidKeyHint({ keySource, url }: ClientConfig): string {
  if (keySource === 'typed') return 'nothing was kept';
  return keySource === 'login'
    ? `the key of your login at ${url} is not valid any more: "headgate login" takes another one`
    : 'HEADGATE_API_KEY must hold a key that is valid';
}

/** A budget's own sentence says when it begins anew. */
function creditHint(message: string): string | null {
  if (!message.startsWith('The balance')) return null;
  const more = '"headgate wallet credit USD --reference TEXT"';
  return `"headgate wallet" shows it, and a platform administrator adds credit: ${more}`;
}

/**
 * Which key it takes, as the gateway's sentence says, and how to get it. Other refusals, such as that of a suspended
 * organization, are not mended by another key.
 */
function neededKeyHint({ keySource, url }: ClientConfig, message: string): string | null {
  const has = keySource === 'login' ? `your login at ${url} has` : 'HEADGATE_API_KEY holds';
  const uses = keySource === 'login' ? '"headgate login" takes it' : 'HEADGATE_API_KEY takes it';
  if (/platform administrator|administrators of the platform/.test(message)) {
    return (
      `${has} none; the key that the first start printed is one, "headgate keys recover" on the gateway's machine makes ` +
      `another, and ${uses}`
    );
  }
  if (!message.includes('scope "management"')) return null;
  return (
    `${has} an inference key; whoever manages the organization makes the other kind with "headgate keys create NAME ` +
    `--scope management", and ${uses}`
  );
}

function listHint(path: string, message: string): string | null {
  // What is missing may be another thing than the path is of.
  const noun = /^There is no such (\w+)\.$/.exec(message)?.[1];
  const found = lists.find(([begin]) => begin === `/v1/${noun}s/`) ?? lists.find(([begin]) => path.startsWith(begin));
  return found?.[1] ?? null;
}

function inputHint(path: string, message: string): string | null {
  if (!/^\/v1\/stacks\/[^/]+\/apply$/.test(path) || !message.startsWith('inputs.')) return null;
  return '"headgate stacks show STACK" lists the inputs, and "--input NAME=VALUE" or "--inputs FILE.json" sets them';
}

const goesOn = ['PENDING', 'PLANNING', 'APPLYING', 'DESTROYING', 'CANCELING'];

/** What may be done with a run that is not as an order needs it. */
function runHint(path: string, message: string): string | null {
  const [, id = '', order = ''] = /^\/v1\/runs\/([^/]+)\/(\w+)$/.exec(path) ?? [];
  const [, status = ''] = /^The run is ([A-Z]+)\.$/.exec(message) ?? [];
  if (order === '' || status === '') return null;
  if (order === 'cancel') return 'only one that waits or goes on can be canceled';
  if (order === 'forget')
    return `a run of its stack goes on there: "headgate runs ls" names it, "headgate runs cancel" ends it`;
  if (status === 'CANCELING') return `it is about to end: "headgate runs logs -f ${id}" waits for that`;
  if (goesOn.includes(status))
    return `it has not ended: "headgate runs logs -f ${id}" waits for that, "headgate runs cancel ${id}" ends it`;
  if (order === 'destroy') return 'nothing of it is left to remove';
  if (status === 'DESTROYED') return 'what it made is gone: "headgate runs apply" makes it again';
  return 'what failed or was canceled is retried: "headgate runs apply" applies the stack once more';
}

const refusalBody = z.looseObject({
  error: z.looseObject({
    message: z.string(),
    code: z.string().nullish(),
    details: z.array(z.looseObject({ field: z.string(), message: z.string() })).default([]),
  }),
});

/** The gateway's word for what it refused; null where it said none. */
export const codeOf = (body: string): string | null => readError(body)?.code ?? null;

function readError(body: string): { readonly text: string; readonly code: string | null } | null {
  try {
    const parsed = refusalBody.safeParse(JSON.parse(body));
    if (!parsed.success) return null;
    const { message, code = null, details } = parsed.data.error;
    // The message names the first few.
    const text = details.length < 2 ? message : details.map((one) => `${one.field}: ${one.message}`).join('; ');
    return { text, code };
  } catch {
    return null;
  }
}
