export { closedLine, closeNetwork } from './closed-network.ts';
export { type Connections, guardConnections, unfinishedMax } from './connections.ts';
export { createNames } from './dns.ts';
export { type Endpoint, endpointKey, tcpEndpoint } from './endpoint.ts';
export { closeServer, listen, type ListenAddress, urlOf } from './listen.ts';
export { dialFirst, internet, isPublicAddress, literalAddress, type Outbound, plainAddress } from './outbound.ts';
