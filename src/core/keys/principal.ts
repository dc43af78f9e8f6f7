import type { PlatformRole, Principal, Project, Scope } from '#core/accounts/accounts.ts';
import type { KeyActor } from '#core/audit/audit.ts';
import type { ApiKey } from './api-key.ts';

/** An API key as an actor, with its full record. */
export interface ApiKeyActor extends KeyActor {
  readonly key: ApiKey;
}

/** A principal that is known to be an API key. */
export interface KeyPrincipal extends Principal<ApiKeyActor> {
  readonly key: ApiKey;
}

/** Principal created once per request; fields derived from the key are computed when read. */
class KeyPrincipalView implements KeyPrincipal {
  readonly key: ApiKey;
  readonly project: Project;
  readonly organizationRole = null;

  constructor(key: ApiKey, project: Project) {
    this.key = key;
    this.project = project;
  }

  get actor(): ApiKeyActor {
    return { kind: 'key', key: this.key };
  }

  get organizationId(): string {
    return this.key.organizationId;
  }

  get platformRole(): PlatformRole {
    return this.key.platformAdmin ? 'admin' : 'user';
  }

  /** A confined management key acts as a member: an administrator could lift the confinement. */
  get scope(): Scope {
    return this.key.confined === true ? 'inference' : this.key.scope;
  }
}

/** @param project the key's own project, or another one of its organization */
export function keyPrincipal(key: ApiKey, project: Project): KeyPrincipal {
  return new KeyPrincipalView(key, project);
}
