/** Names of Docker's Engine API as its documents of versions 1.41, 1.51 and 1.55 have them, all of them together. */

const words = (text: string): readonly string[] => text.trim().split(/\s+/);

export const containerFields = words(`
  Hostname Domainname User AttachStdin AttachStdout AttachStderr ExposedPorts Tty OpenStdin StdinOnce Env Cmd
  Healthcheck ArgsEscaped Image Volumes WorkingDir Entrypoint NetworkDisabled MacAddress OnBuild Labels
  StopSignal StopTimeout Shell
`);

export const hostFields = words(`
  CpuShares Memory CgroupParent BlkioWeight BlkioWeightDevice BlkioDeviceReadBps BlkioDeviceWriteBps
  BlkioDeviceReadIOps BlkioDeviceWriteIOps CpuPeriod CpuQuota CpuRealtimePeriod CpuRealtimeRuntime CpusetCpus
  CpusetMems Devices DeviceCgroupRules DeviceRequests KernelMemory KernelMemoryTCP MemoryReservation
  MemorySwap MemorySwappiness NanoCpus OomKillDisable Init PidsLimit Ulimits CpuCount CpuPercent IOMaximumIOps
  IOMaximumBandwidth Binds ContainerIDFile LogConfig NetworkMode PortBindings RestartPolicy AutoRemove
  VolumeDriver VolumesFrom Mounts CapAdd CapDrop CgroupnsMode Dns DnsOptions DnsSearch ExtraHosts GroupAdd
  IpcMode Cgroup Links OomScoreAdj PidMode Privileged PublishAllPorts ReadonlyRootfs SecurityOpt StorageOpt
  Tmpfs UTSMode UsernsMode ShmSize Sysctls Runtime ConsoleSize Isolation MaskedPaths ReadonlyPaths Annotations
`);

export const mountFields = words(`
  Target Source Type ReadOnly Consistency BindOptions VolumeOptions TmpfsOptions ImageOptions
`);

export const taskFields = words(`
  PluginSpec ContainerSpec NetworkAttachmentSpec Resources RestartPolicy Placement ForceUpdate Runtime
  Networks LogDriver
`);

export const taskContainerFields = words(`
  Image Labels Command Args Hostname Env Dir User Groups Privileges TTY OpenStdin ReadOnly Mounts StopSignal
  StopGracePeriod HealthCheck Hosts DNSConfig Secrets Configs Isolation Init Sysctls CapabilityAdd
  CapabilityDrop Ulimits OomScoreAdj
`);

export const createFields = {
  network: words(`
  Name CheckDuplicate Driver Scope Internal Attachable Ingress ConfigOnly ConfigFrom IPAM EnableIPv6 Options
  Labels EnableIPv4
`),
  service: words(`
  Name Labels TaskTemplate Mode UpdateConfig RollbackConfig Networks EndpointSpec
`),
  secret: words(`
  Name Labels Data Driver Templating
`),
} as const;

export const documentedCalls: readonly string[] = `
GET /containers/json
POST /containers/create
GET /containers/{id}/json
GET /containers/{id}/top
GET /containers/{id}/logs
GET /containers/{id}/changes
GET /containers/{id}/export
GET /containers/{id}/stats
POST /containers/{id}/resize
POST /containers/{id}/start
POST /containers/{id}/stop
POST /containers/{id}/restart
POST /containers/{id}/kill
POST /containers/{id}/update
POST /containers/{id}/rename
POST /containers/{id}/pause
POST /containers/{id}/unpause
POST /containers/{id}/attach
GET /containers/{id}/attach/ws
POST /containers/{id}/wait
DELETE /containers/{id}
HEAD /containers/{id}/archive
GET /containers/{id}/archive
PUT /containers/{id}/archive
POST /containers/prune
GET /images/json
POST /build
POST /build/prune
POST /images/create
GET /images/{name}/json
GET /images/{name}/history
POST /images/{name}/push
POST /images/{name}/tag
DELETE /images/{name}
GET /images/search
POST /images/prune
POST /auth
GET /info
GET /version
GET /_ping
HEAD /_ping
POST /commit
GET /events
GET /system/df
GET /images/{name}/get
GET /images/get
POST /images/load
POST /containers/{id}/exec
POST /exec/{id}/start
POST /exec/{id}/resize
GET /exec/{id}/json
GET /volumes
POST /volumes/create
GET /volumes/{name}
DELETE /volumes/{name}
POST /volumes/prune
GET /networks
GET /networks/{id}
DELETE /networks/{id}
POST /networks/create
POST /networks/{id}/connect
POST /networks/{id}/disconnect
POST /networks/prune
GET /plugins
GET /plugins/privileges
POST /plugins/pull
GET /plugins/{name}/json
DELETE /plugins/{name}
POST /plugins/{name}/enable
POST /plugins/{name}/disable
POST /plugins/{name}/upgrade
POST /plugins/create
POST /plugins/{name}/push
POST /plugins/{name}/set
GET /nodes
GET /nodes/{id}
DELETE /nodes/{id}
POST /nodes/{id}/update
GET /swarm
POST /swarm/init
POST /swarm/join
POST /swarm/leave
POST /swarm/update
GET /swarm/unlockkey
POST /swarm/unlock
GET /services
POST /services/create
GET /services/{id}
DELETE /services/{id}
POST /services/{id}/update
GET /services/{id}/logs
GET /tasks
GET /tasks/{id}
GET /tasks/{id}/logs
GET /secrets
POST /secrets/create
GET /secrets/{id}
DELETE /secrets/{id}
POST /secrets/{id}/update
GET /configs
POST /configs/create
GET /configs/{id}
DELETE /configs/{id}
POST /configs/{id}/update
GET /distribution/{name}/json
POST /session
PUT /volumes/{name}
GET /images/{name}/attestations
`
  .trim()
  .split('\n');
