terraform {
  required_version = ">= 1.5"
}

variable "nodes" {
  type = list(object({
    name            = string
    address         = string
    private_address = optional(string)
    ssh_port        = optional(number, 22)
    ssh_user        = optional(string, "root")
    host_key        = optional(string)
  }))
}

variable "install" {
  type    = bool
  default = false
}

variable "prometheus_binary" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^(/[A-Za-z0-9._/-]+)?$", var.prometheus_binary))
    error_message = "The path must be absolute, of letters, digits, dots, hyphens and slashes."
  }
}

variable "node_exporter_binary" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^(/[A-Za-z0-9._/-]+)?$", var.node_exporter_binary))
    error_message = "The path must be absolute, of letters, digits, dots, hyphens and slashes."
  }
}

variable "node" {
  type    = string
  default = ""
}

variable "port" {
  type    = number
  default = 9190
}

variable "exporter_port" {
  type    = number
  default = 9110
}

variable "targets" {
  type    = list(string)
  default = []
  validation {
    condition     = alltrue([for target in var.targets : can(regex("^[][A-Za-z0-9._:-]+:[0-9]+$", target))])
    error_message = "Targets must be of the form host:port."
  }
}

variable "folder" {
  type    = string
  default = "/var/lib/headgate-monitoring"
  validation {
    condition     = can(regex("^/[A-Za-z0-9._/-]+$", var.folder))
    error_message = "The folder must be an absolute path of letters, digits, dots, hyphens and slashes."
  }
}

variable "retention_days" {
  type    = number
  default = 15
  validation {
    condition     = var.retention_days >= 1 && var.retention_days <= 3650
    error_message = "Retention must be 1 to 3650 days."
  }
}

variable "grafana" {
  type    = bool
  default = false
}

variable "grafana_binary" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^(/[A-Za-z0-9._/-]+)?$", var.grafana_binary))
    error_message = "The path must be absolute, of letters, digits, dots, hyphens and slashes."
  }
}

variable "grafana_password" {
  type      = string
  default   = ""
  sensitive = true
  validation {
    condition     = can(regex("^([!-~]{12,200})?$", var.grafana_password))
    error_message = "The password must have 12 to 200 characters: letters, digits and signs of ASCII, without spaces."
  }
}

variable "grafana_port" {
  type    = number
  default = 9191
}

locals {
  script  = file("${path.module}/service")
  scraped = { for node in var.nodes : node.name => coalesce(node.private_address, node.address) }
  server  = var.node == "" ? var.nodes[0].name : var.node
  config = jsonencode({
    global = { scrape_interval = "15s" }
    scrape_configs = concat(
      [{
        job_name = "node"
        static_configs = [for name, address in local.scraped : {
          targets = ["${strcontains(address, ":") ? "[${address}]" : address}:${var.exporter_port}"]
          labels  = { node = name }
        }]
      }],
      length(var.targets) == 0 ? [] : [{ job_name = "targets", static_configs = [{ targets = var.targets, labels = {} }] }],
    )
  })
  # YAML reads JSON.
  grafana = {
    "grafana.ini" = templatefile("${path.module}/grafana.ini", { folder = "${var.folder}/grafana", port = var.grafana_port })
    "provisioning/datasources/prometheus.yaml" = jsonencode({
      apiVersion = 1
      datasources = [{
        name = "Prometheus", uid = "prometheus", type = "prometheus", access = "proxy", isDefault = true
        url  = "http://127.0.0.1:${var.port}"
      }]
    })
    "provisioning/dashboards/files.yaml" = jsonencode({
      apiVersion = 1
      providers  = [{ name = "files", type = "file", options = { path = "${var.folder}/grafana/dashboards" } }]
    })
    "dashboards/nodes.json" = file("${path.module}/dashboard.json")
  }
}

resource "terraform_data" "exporter" {
  for_each = { for node in var.nodes : node.name => node }

  input = {
    node   = each.value
    folder = var.folder
    listen = "${strcontains(local.scraped[each.key], ":") ? "[${local.scraped[each.key]}]" : local.scraped[each.key]}:${var.exporter_port}"
  }
  triggers_replace = [sha256(local.script), each.value, var.node_exporter_binary, var.exporter_port, var.install, var.folder]

  connection {
    type        = "ssh"
    host        = self.input.node.address
    port        = self.input.node.ssh_port
    user        = self.input.node.ssh_user
    host_key    = self.input.node.host_key
    private_key = file("${path.root}/.platform/id")
    agent       = false
    timeout     = "30s"
  }

  provisioner "remote-exec" {
    inline = ["set -eu; umask 077", "mkdir -p '${self.input.folder}'"]
  }

  provisioner "file" {
    content     = local.script
    destination = "${self.input.folder}/exporter-service"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu; cd '${self.input.folder}'",
      "sh exporter-service find exporter '${var.node_exporter_binary}' '${var.install}' prometheus-node-exporter node_exporter",
      "sh exporter-service start exporter --web.listen-address='${self.input.listen}'",
      "sh exporter-service wait exporter '${self.input.listen}'",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["cd '${self.input.folder}' 2>/dev/null || exit 0", "sh exporter-service stop exporter"]
  }
}

resource "terraform_data" "prometheus" {
  depends_on = [terraform_data.exporter]

  input = {
    node   = [for node in var.nodes : node if node.name == local.server][0]
    folder = var.folder
  }
  triggers_replace = [sha256(local.script), local.config, local.server, var.prometheus_binary, var.port, var.retention_days, var.install, var.nodes, var.folder]

  connection {
    type        = "ssh"
    host        = self.input.node.address
    port        = self.input.node.ssh_port
    user        = self.input.node.ssh_user
    host_key    = self.input.node.host_key
    private_key = file("${path.root}/.platform/id")
    agent       = false
    timeout     = "30s"
  }

  provisioner "remote-exec" {
    inline = ["set -eu; umask 077", "mkdir -p '${self.input.folder}/data'"]
  }

  provisioner "file" {
    content     = local.script
    destination = "${self.input.folder}/prometheus-service"
  }

  provisioner "file" {
    # YAML reads JSON.
    content     = local.config
    destination = "${self.input.folder}/prometheus.yml"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu; cd '${self.input.folder}'",
      "sh prometheus-service find prometheus '${var.prometheus_binary}' '${var.install}' prometheus prometheus",
      "sh prometheus-service start prometheus --config.file=prometheus.yml --storage.tsdb.path=data --storage.tsdb.retention.time=${var.retention_days}d --web.listen-address=127.0.0.1:${var.port}",
      "sh prometheus-service wait prometheus 127.0.0.1:${var.port}",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["cd '${self.input.folder}' 2>/dev/null || exit 0", "sh prometheus-service stop prometheus"]
  }
}

resource "terraform_data" "grafana" {
  count      = var.grafana ? 1 : 0
  depends_on = [terraform_data.prometheus]

  input = {
    node   = [for node in var.nodes : node if node.name == local.server][0]
    folder = var.folder
  }
  # Grafana takes the password only at its first start.
  triggers_replace = [sha256(local.script), local.grafana, local.server, var.grafana_binary, var.nodes, var.folder]

  lifecycle {
    precondition {
      condition     = var.grafana_password != ""
      error_message = "Grafana needs a password: set the input grafana_password."
    }
  }

  connection {
    type        = "ssh"
    host        = self.input.node.address
    port        = self.input.node.ssh_port
    user        = self.input.node.ssh_user
    host_key    = self.input.node.host_key
    private_key = file("${path.root}/.platform/id")
    agent       = false
    timeout     = "30s"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu; umask 077; cd '${self.input.folder}'",
      "mkdir -p grafana/provisioning/datasources grafana/provisioning/dashboards grafana/dashboards",
      "chmod 700 grafana",
    ]
  }

  provisioner "file" {
    content     = local.script
    destination = "${self.input.folder}/grafana-service"
  }

  provisioner "file" {
    content     = local.grafana["grafana.ini"]
    destination = "${self.input.folder}/grafana/grafana.ini"
  }

  provisioner "file" {
    content     = local.grafana["provisioning/datasources/prometheus.yaml"]
    destination = "${self.input.folder}/grafana/provisioning/datasources/prometheus.yaml"
  }

  provisioner "file" {
    content     = local.grafana["provisioning/dashboards/files.yaml"]
    destination = "${self.input.folder}/grafana/provisioning/dashboards/files.yaml"
  }

  provisioner "file" {
    content     = local.grafana["dashboards/nodes.json"]
    destination = "${self.input.folder}/grafana/dashboards/nodes.json"
  }

  provisioner "file" {
    content     = var.grafana_password
    destination = "${self.input.folder}/grafana/password"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu; cd '${self.input.folder}'",
      "sh grafana-service find grafana '${var.grafana_binary}' never /usr/share/grafana/bin/grafana grafana grafana-server",
      "sh grafana-service grafana '${self.input.folder}/grafana'",
      "sh grafana-service wait grafana 127.0.0.1:${var.grafana_port}",
      "rm -f grafana/password",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["cd '${self.input.folder}' 2>/dev/null || exit 0", "sh grafana-service stop grafana", "rm -f grafana/password"]
  }
}

output "web_port" {
  value = var.grafana ? var.grafana_port : var.port
}

output "web_node" {
  value = local.server
}
