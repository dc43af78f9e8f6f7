terraform {
  required_version = ">= 1.4"
}

variable "nodes" {
  type = list(object({
    name     = string
    address  = string
    ssh_port = optional(number, 22)
    ssh_user = optional(string, "root")
    host_key = optional(string)
  }))
}

variable "password" {
  type      = string
  sensitive = true
  validation {
    condition     = length(var.password) >= 12 && length(var.password) <= 200
    error_message = "The password must have 12 to 200 characters."
  }
}

variable "node" {
  type    = string
  default = ""
}

variable "port" {
  type    = number
  default = 8890
}

variable "folder" {
  type    = string
  default = "/var/lib/headgate-notebook"
  validation {
    condition     = can(regex("^/[A-Za-z0-9._/-]+$", var.folder))
    error_message = "The folder must be an absolute path of letters, digits, dots, hyphens and slashes."
  }
}

variable "jupyter" {
  type    = bool
  default = true
}

variable "jupyter_binary" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^(/[A-Za-z0-9._/-]+)?$", var.jupyter_binary))
    error_message = "The path must be absolute, of letters, digits, dots, hyphens and slashes."
  }
}

variable "install" {
  type    = bool
  default = false
}

locals {
  node    = var.node == "" ? var.nodes[0].name : var.node
  service = file("${path.module}/service")
  program = file("${path.module}/notebook.py")
}

resource "terraform_data" "notebook" {
  # A provisioner that runs at the end sees only self.
  input = {
    node   = [for node in var.nodes : node if node.name == local.node][0]
    folder = var.folder
  }
  # The password itself stays out of the state.
  triggers_replace = [
    sha256(local.service), sha256(local.program), local.node, var.nodes, var.port, var.folder, var.jupyter,
    var.jupyter_binary, var.install,
    nonsensitive(sha256("${var.folder} ${var.password}")),
  ]

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
    content     = local.service
    destination = "${self.input.folder}/service"
  }

  provisioner "file" {
    content     = local.program
    destination = "${self.input.folder}/notebook.py"
  }

  provisioner "file" {
    content     = var.password
    destination = "${self.input.folder}/password"
  }

  provisioner "remote-exec" {
    inline = ["set -eu", "sh '${self.input.folder}/service' start ${var.port} ${var.jupyter} '${var.jupyter_binary}' ${var.install}"]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["if [ -e '${self.input.folder}/service' ]; then sh '${self.input.folder}/service' stop; fi"]
  }
}

output "web_port" {
  value = var.port
}

output "web_node" {
  value = local.node
}
