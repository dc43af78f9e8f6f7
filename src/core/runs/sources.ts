import type { Transaction } from '#base/db.ts';
import type { WorkFile } from '#core/runs/runner/runner.ts';

/** What runs need of the rooms beside them; the platform wing hands it over. */

/** Bytes that say which key something was sealed with; everything that is sealed begins with them. */
export const sealMarkBytes = 17;

/** Stands before what was sealed: the length of the key's id in one byte, then the id. */
export const markOf = (keyId: string): Buffer => {
  const id = Buffer.from(keyId, 'utf8');
  return Buffer.concat([Buffer.from([id.length]), id]);
};

/** Encrypts what only runs may read. `context` binds a text to its place: sealed for one, it cannot be opened as another. */
export interface Sealer {
  /**
   * What everything begins with that the key in use seals; null where nothing was ever sealed.
   * @throws AppError secrets_unavailable where that key is not here
   */
  mark(): Promise<Buffer | null>;
  seal(bytes: Buffer, context: string, tx?: Transaction): Promise<Buffer>;
  /** @throws AppError secrets_unavailable when it was sealed with a key that is not here, for another context, or was changed */
  open(sealed: Buffer, context: string): Promise<Buffer>;
}

/** What a run's inputs are sealed for. */
export const inputsContext = (runId: string): string => `inputs ${runId}`;

/** What a state of an installation is sealed for. */
export const stateContext = (installationId: string): string => `state ${installationId}`;

export interface StackInput {
  readonly name: string;
  readonly sensitive: boolean;
  /** Terraform uses it where a run gives no value. Null where there is none. */
  readonly default: unknown;
  /** Its value is in no plan, so that apply needs it once more. */
  readonly ephemeral: boolean;
}

/** A version of a stack, as it was uploaded. */
export interface StackPackage {
  /** Everybody sees it, and an administrator of the platform answers for it. */
  readonly isGlobal: boolean;
  /** The folder of the module that is applied, within the package; empty for its top. */
  readonly root: string;
  readonly files: readonly WorkFile[];
  /** Variables that the module declares. */
  readonly inputs: readonly StackInput[];
  /** Announced by the manifest; an output of the module outranks it. */
  readonly web: WebPort | null;
}

export interface WebPort {
  readonly port: number;
  /** Name of a node of the cluster; null: the first, or the run's own. */
  readonly node: string | null;
  readonly path: string;
}

/** A node as modules see it. */
export interface ClusterNode {
  /** Stays when the node is renamed. */
  readonly id: string;
  readonly name: string;
  readonly address: string;
  readonly private_address: string | null;
  readonly ssh_port: number;
  readonly ssh_user: string;
  readonly host_key: string | null;
  readonly gpus: number;
  readonly hardware_profile: string;
  readonly role: 'head' | 'worker';
}

export interface ClusterContext {
  readonly id: string;
  /** As outsiders name it. */
  readonly publicId: string;
  readonly name: string;
  readonly organizationId: string;
  readonly organizationStatus: 'active' | 'suspended' | 'closed';
  readonly publicDomain: string | null;
  readonly nodes: readonly ClusterNode[];
}

export interface RunSources {
  /** Null when the version is gone. */
  readonly stackPackage: (stackVersionId: string) => Promise<StackPackage | null>;
  /** Keeps the version for as long as runs may need it. @returns whether it is there */
  readonly pinStackVersion: (tx: Transaction, stackVersionId: string) => Promise<boolean>;
  /** Lets go of what `pinStackVersion` kept once. */
  readonly unpinStackVersion: (tx: Transaction, stackVersionId: string) => Promise<void>;
  /** Null when the cluster is gone. */
  readonly cluster: (clusterId: string) => Promise<ClusterContext | null>;
  /** Whose cluster it is, which stays so until the transaction ends. Null when the cluster is gone. */
  readonly holdCluster: (tx: Transaction, clusterId: string) => Promise<string | null>;
  /** The cluster's private key, in OpenSSH's form. Null when the cluster is gone. */
  readonly privateKey: (clusterId: string) => Promise<string | null>;
}
