/** Access to an address: for everybody, or for users who may see the run. */
export type Access = 'public' | 'members';

/** Status of an address. `pending`: nothing has answered yet. */
export type ExposureStatus = 'pending' | 'ready' | 'unreachable';

/** A web port declared by an APPLIED run. Ids are UUIDs. */
export interface DeclaredPort {
  readonly runId: string;
  readonly installationId: string;
  readonly clusterId: string;
  readonly stackName: string;
  /** Name of the node for a run on one node; empty for the whole cluster. */
  readonly ownNode: string;
  readonly port: number;
  /** Name of a node; null for the run's own node, or else the first of the cluster. */
  readonly node: string | null;
  readonly path: string;
  readonly access: Access;
}

/** A node as registered by an operator. A module cannot change its address. */
export interface PlaceNode {
  readonly name: string;
  readonly address: string;
  readonly sshPort: number;
  readonly sshUser: string;
  readonly hostKey: string | null;
  /** True if the node was given back: its machine may belong to somebody else by now. */
  readonly isGivenBack: boolean;
}

export interface ClusterPlace {
  readonly id: string;
  readonly organizationId: string;
  readonly isSuspended: boolean;
  readonly name: string;
  readonly publicDomain: string | null;
  readonly access: Access;
  /** Nodes in the order they were added. */
  readonly nodes: readonly PlaceNode[];
}

/** An address as registered. */
export interface AddressPort {
  readonly address: string;
  readonly port: number;
}

export interface Target {
  readonly node: PlaceNode;
  readonly port: number;
}

/** A web address and its target. */
export interface Exposure {
  readonly installationId: string;
  readonly runId: string;
  readonly clusterId: string;
  readonly organizationId: string;
  /** Host name in lower case, without a port. */
  readonly host: string;
  readonly path: string;
  readonly access: Access;
  /** True while the organization is suspended: nobody may enter. */
  readonly isSuspended: boolean;
  /** Null if the node no longer exists, or was given back. */
  readonly target: Target | null;
}

/** The key, user and organization on whose behalf somebody enters. */
export interface Holder {
  readonly keyId: string | null;
  readonly userId: string | null;
  /** Session of a signed-in user; null for a key. */
  readonly sessionId: string | null;
  readonly organizationId: string;
  /** True for operators, who may see every run. */
  readonly isOperator: boolean;
}

export interface Standing {
  /** When the holder's key or session expires, in Unix milliseconds; null for never. */
  readonly expiresAtMs: number | null;
}

/** Data that addresses need from other rooms; the platform wing provides it. */
export interface ExposureSources {
  /** Returns the ports whose software exists: none of a stack that is being destroyed, or was requested to be. */
  readonly declaredPorts: () => Promise<readonly DeclaredPort[]>;
  /** Returns clusters that are not archived, of organizations that are not closed. */
  readonly clusters: (ids: readonly string[]) => Promise<readonly ClusterPlace[]>;
  /** Returns those of the ports that belong to an SSH server of any node. */
  readonly sshPorts: (ports: readonly AddressPort[]) => Promise<readonly AddressPort[]>;
  /** Returns a cluster's key for logging in to its nodes; null if the cluster no longer exists. */
  readonly privateKey: (clusterId: string) => Promise<string | null>;
  /** Returns the standing of a holder who may still act for the organization; null for others. */
  readonly standing: (holder: Holder) => Promise<Standing | null>;
}
