/** Folders in which programs are searched, in a run and around it. */
export const programsPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Returns variables that name the HTTP proxy of a run's network; addresses of its own loopback are not proxied. */
export function proxyEnvironment(port: number): string[] {
  const url = `http://127.0.0.1:${port}`;
  const names = ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy'];
  return [...names.map((name) => `${name}=${url}`), 'NO_PROXY=127.0.0.1,localhost', 'no_proxy=127.0.0.1,localhost'];
}

/**
 * Returns Terraform's whole environment. Nothing of the gateway's is included: `TF_CLI_ARGS` would change every
 * command.
 */
export function terraformEnvironment({ root, tmpDir }: { readonly root: string; readonly tmpDir: string }): string[] {
  return [
    `PATH=${programsPath}`,
    `HOME=${root}/home`,
    `TMPDIR=${tmpDir}`,
    'LANG=C.UTF-8',
    'CHECKPOINT_DISABLE=1',
    'TF_IN_AUTOMATION=1',
    'TF_INPUT=0',
    `TF_CLI_CONFIG_FILE=${root}/.terraform.rc`,
  ];
}
