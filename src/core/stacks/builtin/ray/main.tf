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
    gpus            = optional(number, 0)
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

variable "authentication" {
  type    = bool
  default = true
}

variable "ray_binary" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^(/[A-Za-z0-9._/-]+)?$", var.ray_binary))
    error_message = "The path must be absolute, of letters, digits, dots, hyphens and slashes."
  }
}

variable "install" {
  type    = bool
  default = false
}

variable "ray_version" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^([0-9]+(\\.[0-9a-z]+)*)?$", var.ray_version))
    error_message = "The version must be of the form 2.60.0."
  }
}

variable "port" {
  type    = number
  default = 6379
}

variable "dashboard_port" {
  type    = number
  default = 8265
}

variable "folder" {
  type    = string
  default = "/var/lib/headgate-ray"
  validation {
    condition     = can(regex("^/[A-Za-z0-9._/-]+$", var.folder))
    error_message = "The folder must be an absolute path of letters, digits, dots, hyphens and slashes."
  }
}

locals {
  script = file("${path.module}/service")
  head   = try([for node in var.nodes : node if node.name == var.node][0], var.nodes[0])
  # Without names: a renamed node keeps what runs on it.
  nodes = { for node in var.nodes : node.id => {
    address  = node.address
    inside   = coalesce(node.private_address, node.address)
    ssh_port = node.ssh_port
    ssh_user = node.ssh_user
    host_key = node.host_key
    gpus     = node.gpus > 0 ? "--num-gpus=${node.gpus}" : ""
  } }
  inside  = local.nodes[local.head.id].inside
  joined  = "${strcontains(local.inside, ":") ? "[${local.inside}]" : local.inside}:${var.port}"
  token   = sha256("ray ${var.engine_api_key}")
  program = [var.ray_binary, var.install, var.ray_version]
  find    = "find '${var.ray_binary}' ${var.install} '${var.ray_version}'"
  # The token itself stays out of the state.
  settings = [sha256(local.script), local.program, var.folder, var.authentication, nonsensitive(sha256(local.token))]
}

resource "terraform_data" "head" {
  # A provisioner that runs at the end sees only self.
  input = {
    node   = local.nodes[local.head.id]
    folder = "${var.folder}/head"
  }
  triggers_replace = [local.settings, local.head.id, local.nodes[local.head.id], var.port, var.dashboard_port]

  lifecycle {
    precondition {
      condition     = var.node == "" || local.head.name == var.node
      error_message = "The cluster has no node ${var.node}: name one of its nodes, or none for the first."
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
    content     = local.token
    destination = "${self.input.folder}/token"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu; cd '${self.input.folder}'; chmod 600 token",
      "sh service ${local.find}",
      "sh service start ${var.authentication} --head --port=${var.port} --node-ip-address=${self.input.node.inside} --dashboard-host=127.0.0.1 --dashboard-port=${var.dashboard_port} ${self.input.node.gpus}",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["if [ -e '${self.input.folder}/service' ]; then sh '${self.input.folder}/service' stop; fi"]
  }
}

resource "terraform_data" "worker" {
  for_each = { for id, node in local.nodes : id => node if id != local.head.id }

  input = {
    node   = each.value
    folder = "${var.folder}/worker"
  }
  # Workers of a head that ended do not find the next one.
  triggers_replace = [local.settings, each.value, terraform_data.head.id]

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
    content     = local.token
    destination = "${self.input.folder}/token"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu; cd '${self.input.folder}'; chmod 600 token",
      "sh service ${local.find}",
      "sh service start ${var.authentication} --address=${local.joined} --node-ip-address=${self.input.node.inside} ${self.input.node.gpus}",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["if [ -e '${self.input.folder}/service' ]; then sh '${self.input.folder}/service' stop; fi"]
  }
}

output "web_port" {
  value = var.dashboard_port
}

output "web_node" {
  value = local.head.name
}

output "address" {
  value = local.joined
}

output "token_file" {
  value = "${var.folder}/head/token"
}
