/** The calls of dockerode that are used here. Answers are `unknown`, because they are read with a schema. */
declare module 'dockerode' {
  import type { Agent } from 'node:http';
  import type { Readable } from 'node:stream';

  interface CallOptions {
    readonly abortSignal?: AbortSignal;
    readonly [name: string]: unknown;
  }

  interface Container {
    inspect(options: CallOptions): Promise<unknown>;
    start(options: CallOptions): Promise<unknown>;
    stop(options: CallOptions): Promise<unknown>;
    rename(options: CallOptions): Promise<unknown>;
    remove(options: CallOptions): Promise<unknown>;
    attach(options: CallOptions): Promise<Readable>;
    logs(options: CallOptions & { follow: true }): Promise<Readable>;
    logs(options: CallOptions & { follow: false }): Promise<unknown>;
    kill(options: CallOptions): Promise<unknown>;
    stats(options: CallOptions & { readonly stream: false }): Promise<unknown>;
    getArchive(options: CallOptions & { readonly path: string }): Promise<Readable>;
    putArchive(archive: Buffer, options: CallOptions & { readonly path: string }): Promise<unknown>;
  }

  interface Network {
    inspect(options: CallOptions): Promise<unknown>;
    remove(options: CallOptions): Promise<unknown>;
    connect(options: CallOptions): Promise<unknown>;
    disconnect(options: CallOptions): Promise<unknown>;
  }

  interface Image {
    inspect(options: CallOptions): Promise<unknown>;
    remove(options: CallOptions): Promise<unknown>;
  }

  interface Service {
    /** dockerode sends its first argument as the login of a registry. */
    update(login: undefined, options: CallOptions & { _query: object; _body: object }): Promise<unknown>;
    remove(options: CallOptions): Promise<unknown>;
    logs(options: CallOptions & { follow: true }): Promise<Readable>;
    logs(options: CallOptions & { follow: false }): Promise<unknown>;
  }

  interface Secret {
    readonly id: string;
    remove(options: CallOptions): Promise<unknown>;
  }

  class Docker {
    constructor(options: {
      socketPath?: string | undefined;
      host?: string | undefined;
      port?: number | undefined;
      protocol?: 'http' | 'https' | undefined;
      pathPrefix?: string | undefined;
      ca?: Buffer | undefined;
      cert?: Buffer | undefined;
      key?: Buffer | undefined;
      agent?: Agent | undefined;
      timeout?: number | undefined;
    });
    readonly modem: {
      /** `v1.41`; put before every path. */
      version: string | undefined;
    };
    version(options: CallOptions): Promise<unknown>;
    info(options: CallOptions): Promise<unknown>;
    listContainers(options: CallOptions): Promise<unknown>;
    /** `_query` and `_body` keep the content of the body, which may include secrets, out of the URL. */
    createContainer(options: CallOptions & { _query: object; _body: object }): Promise<{ readonly id: string }>;
    getContainer(id: string): Container;
    listNetworks(options: CallOptions): Promise<unknown>;
    createNetwork(options: CallOptions & { _query: object; _body: object }): Promise<unknown>;
    getNetwork(id: string): Network;
    getImage(name: string): Image;
    /** `authconfig` is sent as X-Registry-Auth, and never becomes a part of the URL. */
    createImage(options: CallOptions & { _query: object; _body: object; authconfig?: object }): Promise<Readable>;
    listServices(options: CallOptions): Promise<unknown>;
    listTasks(options: CallOptions): Promise<unknown>;
    listNodes(options: CallOptions): Promise<unknown>;
    listSecrets(options: CallOptions): Promise<unknown>;
    /** The login is sent as X-Registry-Auth. */
    createService(
      login: object | undefined,
      options: CallOptions & { _query: object; _body: object },
    ): Promise<unknown>;
    createSecret(options: CallOptions & { _query: object; _body: object }): Promise<Secret>;
    getService(id: string): Service;
    getSecret(id: string): Secret;
    getEvents(options: CallOptions): Promise<Readable>;
  }

  export = Docker;
}
