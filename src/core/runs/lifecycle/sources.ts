import type { Transaction } from '#base/database/database.ts';
import type { WorkFile } from '#core/runs/runner/runner.ts';

/** Interfaces to the rooms beside runs; the platform wing provides them. */

/** Number of bytes at the beginning of an encrypted value that identify its key. */
export const sealMarkBytes = 17;

/** Returns the first bytes of values encrypted with a key: the length of the key's id in one byte, then the id. */
export const markOf = (keyId: string): Buffer => {
  const id = Buffer.from(keyId, 'utf8');
  return Buffer.concat([Buffer.from([id.length]), id]);
};

/**
 * Encrypts data that only runs may read. `context` binds a value to its place: a value cannot be decrypted for another
 * context.
 */
export interface Sealer {
  /**
   * The first bytes of values encrypted with the key in use; null if nothing was ever encrypted.
   * @throws AppError secrets_unavailable if the key is not here
   */
  mark(): Promise<Buffer | null>;
  seal(bytes: Buffer, context: string, tx?: Transaction): Promise<Buffer>;
  /**
   * @throws AppError secrets_unavailable if its key is not here, the context is another one, or the value was changed
   */
  open(sealed: Buffer, context: string): Promise<Buffer>;
}

/** Encryption context of a run's inputs. */
export const inputsContext = (runId: string): string => `inputs ${runId}`;

/** Encryption context of a run's plan. */
export const planContext = (runId: string): string => `plan ${runId}`;

/** Encryption context of an installation's states. */
export const stateContext = (installationId: string): string => `state ${installationId}`;

export interface StackInput {
  readonly name: string;
  readonly sensitive: boolean;
  /** Terraform's default where a run gives no value; null if there is none. */
  readonly default: unknown;
  /** The value is in no plan, so `apply` needs it again. */
  readonly ephemeral: boolean;
}

/** A version of a stack, as uploaded. */
export interface StackPackage {
  /** Visible to everybody; a platform administrator is responsible for the package. */
  readonly isGlobal: boolean;
  /** The folder of the module within the package; empty for its top. */
  readonly root: string;
  readonly files: readonly WorkFile[];
  /** Variables that the module declares. */
  readonly inputs: readonly StackInput[];
  /** The manifest's web port; outputs of the module override it. */
  readonly web: WebPort | null;
}

export interface WebPort {
  readonly port: number;
  /** Name of a node of the cluster; null: the run's own node, or the first one. */
  readonly node: string | null;
  readonly path: string;
}

/** A node as modules see it. */
export interface ClusterNode {
  /** Survives a rename of the node. */
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
  /** The id in the API. */
  readonly publicId: string;
  readonly name: string;
  readonly organizationId: string;
  readonly organizationStatus: 'active' | 'suspended' | 'closed';
  readonly publicDomain: string | null;
  /** Key of the engines that runs start on this cluster. A secret. */
  readonly engineApiKey: string;
  readonly nodes: readonly ClusterNode[];
}

export interface RunSources {
  /** Null if the version was deleted. */
  readonly stackPackage: (stackVersionId: string) => Promise<StackPackage | null>;
  /** Pins the version for as long as runs may need it. @returns true if the version exists */
  readonly pinStackVersion: (tx: Transaction, stackVersionId: string) => Promise<boolean>;
  /** Ends one pin of `pinStackVersion`. */
  readonly unpinStackVersion: (tx: Transaction, stackVersionId: string) => Promise<void>;
  /** Null if the cluster was archived. */
  readonly cluster: (clusterId: string) => Promise<ClusterContext | null>;
  /** Returns the cluster's organization, and keeps it until the transaction ends. Null if the cluster was archived. */
  readonly holdCluster: (tx: Transaction, clusterId: string) => Promise<string | null>;
  /** The cluster's private key, in OpenSSH's format. Null if the cluster was archived. */
  readonly privateKey: (clusterId: string) => Promise<string | null>;
}
