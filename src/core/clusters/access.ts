/** Users of web addresses on a cluster: everybody, or those who may see the cluster. */
export const clusterAccess = ['public', 'members'] as const;
