terraform {
  required_version = ">= 1.5"
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

variable "engine_api_key" {
  type      = string
  sensitive = true
}

variable "model" {
  type = string
  validation {
    condition     = can(regex("^[A-Za-z0-9/][A-Za-z0-9._/-]*$", var.model))
    error_message = "The model must be a repository on Hugging Face or an absolute path."
  }
}

variable "model_id" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^([A-Za-z0-9][A-Za-z0-9._:/-]*)?$", var.model_id))
    error_message = "The id must have letters, digits, dots, hyphens, underscores, colons and slashes."
  }
}

variable "task_type" {
  type    = string
  default = "chat"
  validation {
    condition     = contains(["chat", "completion", "embedding", "rerank", "vision", "code"], var.task_type)
    error_message = "The task type must be chat, completion, embedding, rerank, vision or code."
  }
}

variable "context_length" {
  type    = number
  default = 8192
  validation {
    condition     = var.context_length >= 1 && floor(var.context_length) == var.context_length
    error_message = "The context length must be a whole number of tokens."
  }
}

variable "input_price" {
  type    = number
  default = 0
  validation {
    condition     = var.input_price >= 0
    error_message = "The price must not be negative."
  }
}

variable "output_price" {
  type    = number
  default = 0
  validation {
    condition     = var.output_price >= 0
    error_message = "The price must not be negative."
  }
}

variable "node" {
  type    = string
  default = ""
}

variable "listen" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^[A-Za-z0-9.:-]*$", var.listen))
    error_message = "Listen must be an address."
  }
}

variable "port" {
  type    = number
  default = 8000
}

variable "arguments" {
  type    = list(string)
  default = []
  validation {
    condition     = alltrue([for argument in var.arguments : !can(regex("[\n\r]", argument))])
    error_message = "An argument must not have line breaks."
  }
}

variable "gpus" {
  type    = number
  default = 0
  validation {
    condition     = var.gpus >= 0 && floor(var.gpus) == var.gpus
    error_message = "GPUs must be a whole number."
  }
}

variable "hugging_face_token" {
  type      = string
  default   = ""
  sensitive = true
  validation {
    condition     = can(regex("^[A-Za-z0-9_-]*$", var.hugging_face_token))
    error_message = "The token must have letters, digits, underscores and hyphens."
  }
}

variable "vllm_binary" {
  type    = string
  default = ""
  validation {
    condition     = can(regex("^(/[A-Za-z0-9._/-]+)?$", var.vllm_binary))
    error_message = "The path must be absolute, of letters, digits, dots, hyphens and slashes."
  }
}

variable "install" {
  type    = bool
  default = false
}

variable "folder" {
  type    = string
  default = "/var/lib/headgate-vllm"
  validation {
    condition     = can(regex("^/[A-Za-z0-9._/-]+$", var.folder))
    error_message = "The folder must be an absolute path of letters, digits, dots, hyphens and slashes."
  }
}

variable "start_minutes" {
  type    = number
  default = 45
  validation {
    condition     = var.start_minutes >= 1 && floor(var.start_minutes) == var.start_minutes
    error_message = "Start minutes must be a whole number from 1."
  }
}

locals {
  node    = [for node in var.nodes : node if node.name == (var.node == "" ? var.nodes[0].name : var.node)][0]
  id      = var.model_id == "" ? var.model : var.model_id
  listen  = var.listen == "" ? local.node.address : var.listen
  gpus    = var.gpus == 0 ? max(1, local.node.gpus) : var.gpus
  service = file("${path.module}/service")
  # One argument a line, which the script reads; no shell sees them.
  arguments = join("\n", concat(
    [
      "serve", var.model, "--served-model-name", local.id, "--host", local.listen, "--port", tostring(var.port),
      "--max-model-len", tostring(var.context_length), "--tensor-parallel-size", tostring(local.gpus),
      # Exact bills need these two.
      "--enable-force-include-usage", "--enable-prompt-tokens-details",
    ],
    var.arguments,
    [""],
  ))
  secrets = "VLLM_API_KEY=${var.engine_api_key}\n${var.hugging_face_token == "" ? "" : "HF_TOKEN=${var.hugging_face_token}\n"}"
}

resource "terraform_data" "vllm" {
  # A provisioner that runs at the end sees only self.
  input = {
    node   = local.node
    folder = var.folder
  }
  # The secrets themselves stay out of the state.
  triggers_replace = [
    sha256(local.service), local.node, local.arguments, var.folder, var.vllm_binary, var.install,
    nonsensitive(sha256("${var.folder} ${local.secrets}")),
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
    content     = local.arguments
    destination = "${self.input.folder}/arguments"
  }

  provisioner "file" {
    content     = local.secrets
    destination = "${self.input.folder}/secrets"
  }

  provisioner "remote-exec" {
    inline = [
      "set -eu",
      "sh '${self.input.folder}/service' find '${var.vllm_binary}' ${var.install}",
      "sh '${self.input.folder}/service' start ${var.port} ${var.start_minutes}",
    ]
  }

  provisioner "remote-exec" {
    when   = destroy
    inline = ["if [ -e '${self.input.folder}/service' ]; then sh '${self.input.folder}/service' stop; fi"]
  }
}

# The gateway reads this output as an engine file.
output "engine" {
  value = {
    id             = local.id
    task_type      = var.task_type
    context_length = var.context_length
    pricing        = { input_per_million = var.input_price, output_per_million = var.output_price }
    node           = local.node.name
    port           = var.port
  }
  depends_on = [terraform_data.vllm]
}
