/** Who may use an address: everybody, or who may see the run. */
export type Access = 'public' | 'members';

/** `pending`: nothing has answered there yet. */
export type ExposureStatus = 'pending' | 'ready' | 'unreachable';

/** A web port that a run which is APPLIED has declared. Ids are UUIDs. */
export interface DeclaredPort {
  readonly runId: string;
  readonly installationId: string;
  readonly clusterId: string;
  readonly stackName: string;
  /** Of a run for one node its name; empty for the whole cluster. */
  readonly ownNode: string;
  readonly port: number;
  /** Name of a node; null: the run's own, else the first of the cluster. */
  readonly node: string | null;
  readonly path: string;
  readonly access: Access;
}

/** A node as an operator has registered it. No module says where it is. */
export interface PlaceNode {
  readonly name: string;
  readonly address: string;
  readonly sshPort: number;
  readonly sshUser: string;
  readonly hostKey: string | null;
  /** Its machine may be somebody else's by now. */
  readonly isGivenBack: boolean;
}

export interface ClusterPlace {
  readonly id: string;
  readonly organizationId: string;
  readonly isSuspended: boolean;
  readonly name: string;
  readonly publicDomain: string | null;
  readonly access: Access;
  /** In the order they were added. */
  readonly nodes: readonly PlaceNode[];
}

/** An address as it was registered. */
export interface AddressPort {
  readonly address: string;
  readonly port: number;
}

export interface Target {
  readonly node: PlaceNode;
  readonly port: number;
}

/** A web address, and what it leads to. */
export interface Exposure {
  readonly installationId: string;
  readonly runId: string;
  readonly clusterId: string;
  readonly organizationId: string;
  /** In lower case, without a port. */
  readonly host: string;
  readonly path: string;
  readonly access: Access;
  /** Nobody is let in until its organization is active again. */
  readonly isSuspended: boolean;
  /** Null where the node is not there any more, or was given back. */
  readonly target: Target | null;
}

/** On whose behalf somebody enters. */
export interface Holder {
  readonly keyId: string | null;
  readonly userId: string | null;
  /** Of who is signed in; null for a key. */
  readonly sessionId: string | null;
  readonly organizationId: string;
  /** May see every run. */
  readonly isOperator: boolean;
}

export interface Standing {
  /** When the holder's key or session expires, in Unix milliseconds; null: never. */
  readonly expiresAtMs: number | null;
}

/** What addresses need of the rooms beside them; the platform wing hands it over. */
export interface ExposureSources {
  /** Those whose software is there: none that is being destroyed, or was asked to be. */
  readonly declaredPorts: () => Promise<readonly DeclaredPort[]>;
  /** Clusters that are not archived, of organizations that are not closed. */
  readonly clusters: (ids: readonly string[]) => Promise<readonly ClusterPlace[]>;
  /** Those of these ports of addresses that are SSH servers' of nodes, whosever. */
  readonly sshPorts: (ports: readonly AddressPort[]) => Promise<readonly AddressPort[]>;
  /** Of a cluster, to log in to its nodes with. Null when it is gone. */
  readonly privateKey: (clusterId: string) => Promise<string | null>;
  /** Of a holder who may still act for the organization; null for any other. */
  readonly standing: (holder: Holder) => Promise<Standing | null>;
}
