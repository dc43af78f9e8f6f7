terraform {
  required_version = ">= 1.5"
}

variable "nodes" {
  type = list(object({
    id              = string
    name            = string
    address         = string
    private_address = optional(string)
    ssh_port        = optional(number, 22)
    ssh_user        = optional(string, "root")
    host_key        = optional(string)
  }))
}

variable "engine_api_key" {
  type      = string
  sensitive = true
}

variable "node" {
  type    = string
  default = ""
}

variable "k3s_binary" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^(/[A-Za-z0-9._/-]+)?$", var.k3s_binary))
    error_message = "The path must be absolute, of letters, digits, dots, hyphens and slashes."
  }
}

variable "install_url" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^(https?://[A-Za-z0-9._~:/%+-]+)?$", var.install_url))
    error_message = "The address must begin with https:// or http://, and have no query and no password."
  }
}

variable "install_sha256" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^([0-9a-f]{64})?$", var.install_sha256))
    error_message = "The checksum must be 64 hexadecimal digits in lower case."
  }
}

variable "disable" {
  type    = list(string)
  default = ["traefik", "servicelb"]
  validation {
    condition     = alltrue([for part in var.disable : can(regex("^[a-z-]+$", part))])
    error_message = "Parts of k3s have lower-case letters and hyphens, such as traefik."
  }
}

variable "port" {
  type    = number
  default = 6443
}

variable "folder" {
  type    = string
  default = "/var/lib/headgate-k3s"
  validation {
    condition     = can(regex("^/[A-Za-z0-9._/-]+$", var.folder))
    error_message = "The folder must be an absolute path of letters, digits, dots, hyphens and slashes."
  }
}

locals {
  script = file("${path.module}/service")
  head   = try([for node in var.nodes : node if node.name == var.node][0], var.nodes[0])
  nodes  = { for node in var.nodes : node.id => merge(node, { inside = coalesce(node.private_address, node.address) }) }
  server = local.nodes[local.head.id]
  joined = "https://${strcontains(local.server.inside, ":") ? "[${local.server.inside}]" : local.server.inside}:${var.port}"
  # Agents do not get the token of the server.
  server_token = sha256("k3s server ${var.engine_api_key}")
  agent_token  = sha256("k3s agent ${var.engine_api_key}")
  find         = "find '${var.k3s_binary}' '${var.install_url}' '${var.install_sha256}'"
  parts        = join(" ", [for part in var.disable : "--disable=${part}"])
  # The tokens themselves stay out of the state.
  settings = [sha256(local.script), local.find, var.folder, nonsensitive(sha256("${local.server_token} ${local.agent_token}"))]
}

resource "terraform_data" "server" {
  # A provisioner that runs at the end sees only self.
  input = {
    node   = local.server
    folder = "${var.folder}/server"
  }
  triggers_replace = [local.settings, local.server, var.port, local.parts]

  lifecycle {
    precondition {
      condition     = var.node == "" || local.head.name == var.node
      error_message = "The cluster has no node ${var.node}: name one of its nodes, or none for the first."
    }
    precondition {
      condition     = (var.install_url == "") == (var.install_sha256 == "")
      error_message = "Set both install_url and install_sha256, or neither."
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
      "set -eu; umask 077",
      "mkdir -p '${self.input.folder}' && chmod 700 '${self.input.folder}'",
      "if [ -e '${self.input.folder}/service' ]; then sh '${self.input.folder}/service' stop; fi",
    ]
  }

  provisioner "file" {
    content     = local.script
    destination = "${self.input.folder}/service"
  }
  provisioner "file" {
    content     = local.server_token
    destination = "${self.input.folder}/token"
  }

  provisioner "file" {
    content     = local.agent_token
    destination = "${self.input.folder}/agent-token"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu; cd '${self.input.folder}'; chmod 600 token agent-token",
      "sh service ${local.find}",
      "sh service start server '${self.input.node.inside}' --token-file=\"$PWD/token\" --agent-token-file=\"$PWD/agent-token\" --node-name=${self.input.node.name} --https-listen-port=${var.port} --tls-san=${self.input.node.inside} --write-kubeconfig=\"$PWD/kubeconfig.yaml\" --write-kubeconfig-mode=600 ${local.parts}",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["if [ -e '${self.input.folder}/service' ]; then sh '${self.input.folder}/service' stop; fi"]
  }
}

resource "terraform_data" "agent" {
  for_each = { for id, node in local.nodes : id => node if id != local.head.id }

  input = {
    node   = each.value
    folder = "${var.folder}/agent"
  }
  triggers_replace = [local.settings, each.value, terraform_data.server.id]

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
      "set -eu; umask 077",
      "mkdir -p '${self.input.folder}' && chmod 700 '${self.input.folder}'",
      "if [ -e '${self.input.folder}/service' ]; then sh '${self.input.folder}/service' stop; fi",
    ]
  }

  provisioner "file" {
    content     = local.script
    destination = "${self.input.folder}/service"
  }
  provisioner "file" {
    content     = local.agent_token
    destination = "${self.input.folder}/token"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu; cd '${self.input.folder}'; chmod 600 token",
      "sh service ${local.find}",
      "sh service start agent '${self.input.node.inside}' --server=${local.joined} --token-file=\"$PWD/token\" --node-name=${self.input.node.name}",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["if [ -e '${self.input.folder}/service' ]; then sh '${self.input.folder}/service' stop; fi"]
  }
}

output "server" {
  value = local.head.name
}

output "kubeconfig" {
  value = "${var.folder}/server/kubeconfig.yaml"
}
