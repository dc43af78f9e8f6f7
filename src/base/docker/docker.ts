/** The Docker Engine API: bounded calls over a socket, TCP or SSH, with helpers. Contains no business rules. */
export type { DockerAddress } from './address.ts';
export type { ContainerDetail, ContainerSummary, DockerInfo, NetworkSummary } from './answers.ts';
export type { DockerApi } from './api.ts';
export { type ArchiveFile, packArchive, readArchive } from './archive.ts';
export { DockerError } from './call.ts';
export { connectHost, type HostAddress, type HostConnection } from './connection.ts';
export { pullImage } from './images.ts';
export { demultiplex, readLogBytes, readLogLines, stderrStream } from './logs.ts';
export { createRegistryLogins, hideLogin, type RegistryLogins } from './registry-logins.ts';
export { findOwnContainer } from './self.ts';
export type { SwarmNode, SwarmService, SwarmTask } from './swarm-answers.ts';
