/** Who may use web addresses of what runs on a cluster: everybody, or who may see it. */
export const clusterAccess = ['public', 'members'] as const;
