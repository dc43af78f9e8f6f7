terraform {
  required_version = ">= 1.4"
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

variable "install" {
  type    = bool
  default = false
}

variable "controller_port" {
  type    = number
  default = 16817
}

variable "node_port" {
  type    = number
  default = 16818
}

variable "folder" {
  type    = string
  default = "/var/lib/headgate-slurm"
  validation {
    condition     = can(regex("^/[A-Za-z0-9._/-]+$", var.folder))
    error_message = "The folder must be an absolute path of letters, digits, dots, hyphens and slashes."
  }
}

locals {
  script = file("${path.module}/service")
  head   = try([for node in var.nodes : node if node.name == var.node][0], var.nodes[0])
  nodes  = { for node in var.nodes : node.id => node }
  config = templatefile("${path.module}/slurm.conf", {
    controller      = coalesce(local.head.private_address, local.head.address)
    controller_port = var.controller_port
    node_port       = var.node_port
    user            = local.head.ssh_user
    folder          = var.folder
  })
  munge_key = sha512("munge ${var.engine_api_key}")
  # The key itself stays out of the state.
  settings = [sha256(local.script), local.config, nonsensitive(sha256(local.munge_key))]
}

# Files of all programs, and MUNGE, by which the nodes trust each other.
resource "terraform_data" "node" {
  for_each = local.nodes

  # A provisioner that runs at the end sees only self.
  input = {
    node   = each.value
    folder = var.folder
  }
  triggers_replace = [local.settings, each.value]

  lifecycle {
    precondition {
      condition     = var.node == "" || local.head.name == var.node
      error_message = "The cluster has no node ${var.node}: name one of its nodes, or none for the first."
    }
    precondition {
      condition     = each.value.ssh_user == local.head.ssh_user
      error_message = "The SSH user of all nodes must be the same: ${each.value.name} has ${each.value.ssh_user}, and ${local.head.name} has ${local.head.ssh_user}."
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
      "set -eu; umask 022",
      "mkdir -p '${self.input.folder}/run' '${self.input.folder}/spool' '${self.input.folder}/private/state'",
      "chmod 755 '${self.input.folder}'; chmod 700 '${self.input.folder}/private'",
    ]
  }

  provisioner "file" {
    content     = local.script
    destination = "${self.input.folder}/service"
  }

  provisioner "file" {
    content     = local.config
    destination = "${self.input.folder}/slurm.conf"
  }

  provisioner "file" {
    content     = local.munge_key
    destination = "${self.input.folder}/private/munge.key"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu; cd '${self.input.folder}'",
      "chmod 644 slurm.conf; chmod 600 private/munge.key",
      "sh service find ${var.install} munged=munge slurmd=slurmd srun=slurm-client",
      "sh service start_munge",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["cd '${self.input.folder}' 2>/dev/null || exit 0", "[ ! -e service ] || sh service stop_munge; rm -f private/munge.key"]
  }
}

resource "terraform_data" "controller" {
  depends_on = [terraform_data.node]

  input = {
    node   = local.head
    folder = var.folder
  }
  triggers_replace = [local.settings, local.head]

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
      "set -eu; cd '${self.input.folder}'",
      "sh service find ${var.install} slurmctld=slurmctld",
      "sh service start_slurmctld",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["cd '${self.input.folder}' 2>/dev/null || exit 0", "[ ! -e service ] || sh service stop_slurmctld"]
  }
}

resource "terraform_data" "slurmd" {
  for_each   = local.nodes
  depends_on = [terraform_data.controller]

  input = {
    node   = each.value
    folder = var.folder
  }
  triggers_replace = [local.settings, each.value]

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
    inline = ["set -eu; cd '${self.input.folder}'", "sh service start_slurmd '${self.input.node.name}' ${self.input.node.gpus}"]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["cd '${self.input.folder}' 2>/dev/null || exit 0", "[ ! -e service ] || sh service stop_slurmd '${self.input.node.name}'"]
  }
}

output "controller" {
  value = local.head.name
}

output "slurm_conf" {
  value = "${var.folder}/slurm.conf"
}
