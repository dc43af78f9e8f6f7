export type DockerAddress =
  | { readonly type: 'unix'; readonly socketPath: string }
  | {
      readonly type: 'tcp';
      readonly host: string;
      readonly port: number;
      /** Paths of PEM files; null: without TLS. */
      readonly tls: { readonly ca: string; readonly cert: string; readonly key: string } | null;
    }
  | {
      readonly type: 'ssh';
      readonly user: string;
      readonly host: string;
      readonly port: number;
      /** Socket of the Docker engine on that host. */
      readonly socketPath: string;
      /** Path of the private key. */
      readonly key: string;
      /** `SHA256:…`, as `ssh-keygen -l` prints it. */
      readonly hostKey: string;
    };
