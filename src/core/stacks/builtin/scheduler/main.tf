terraform {
  required_version = ">= 1.4"
}

variable "cluster_id" {
  type = string
}

variable "nodes" {
  type = list(object({
    name     = string
    address  = string
    ssh_port = optional(number, 22)
    ssh_user = optional(string, "root")
    host_key = optional(string)
    gpus     = optional(number, 0)
  }))
}

variable "folder" {
  type    = string
  default = "/var/lib/headgate-queue"
  validation {
    condition     = can(regex("^/[A-Za-z0-9._/-]+$", var.folder))
    error_message = "The folder must be an absolute path of letters, digits, dots, hyphens and slashes."
  }
}

variable "slots" {
  type    = number
  default = 0
  validation {
    condition     = var.slots >= 0 && var.slots <= 256 && floor(var.slots) == var.slots
    error_message = "Slots must be a whole number from 0 to 256."
  }
}

locals {
  script = file("${path.module}/hgq")
}

resource "terraform_data" "worker" {
  for_each = { for node in var.nodes : node.name => node }

  # A provisioner that runs at the end sees only self.
  input = {
    node   = each.value
    folder = var.folder
    slots  = var.slots > 0 ? var.slots : max(1, each.value.gpus)
  }
  triggers_replace = [sha256(local.script), var.folder, var.slots, each.value]

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
      "mkdir -p '${self.input.folder}' || { echo 'the user ${self.input.node.ssh_user} may not make the folder ${self.input.folder}' >&2; exit 1; }",
      # Workers of an earlier apply run the script of that apply.
      "if [ -e '${self.input.folder}/hgq' ]; then sh '${self.input.folder}/hgq' stop; fi",
    ]
  }

  provisioner "file" {
    content     = local.script
    destination = "${self.input.folder}/hgq"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu",
      "sh '${self.input.folder}/hgq' start '${self.input.node.name}' ${self.input.slots} ${self.input.node.gpus}",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["if [ -e '${self.input.folder}/hgq' ]; then sh '${self.input.folder}/hgq' stop; fi"]
  }
}

output "submit" {
  value = "sh ${var.folder}/hgq submit 'COMMAND'"
}

output "slots" {
  value = { for name, worker in terraform_data.worker : name => worker.output.slots }
}
