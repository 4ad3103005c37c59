# A palette derived from one colour. Only `terraform_data`, so there is no provider to download.

terraform {
  required_version = ">= 1.5.0"
}

variable "accent" {
  type        = string
  description = "A colour as #rrggbb."

  validation {
    condition     = can(regex("^#[0-9a-fA-F]{6}$", var.accent))
    error_message = "Expected a colour such as #e4572e."
  }
}

variable "site_url" {
  type        = string
  description = "Where the page answers."
}

locals {
  channels = [for start in [1, 3, 5] : parseint(substr(var.accent, start, 2), 16)]

  # Towards white or black by a share of the way.
  palette = {
    accent = lower(var.accent)
    light  = format("#%02x%02x%02x", [for channel in local.channels : floor(channel + (255 - channel) * 0.8)]...)
    dark   = format("#%02x%02x%02x", [for channel in local.channels : floor(channel * 0.45)]...)
    text   = sum(local.channels) > 420 ? "#1b1b1f" : "#ffffff"
  }
}

resource "terraform_data" "palette" {
  input = local.palette
}

output "palette" {
  value = terraform_data.palette.output
}

output "site" {
  value = var.site_url
}

output "preview_key" {
  description = "Would open a preview of the theme; a stand-in for any secret that Terraform makes."
  value       = sha256("${terraform_data.palette.id}:${var.site_url}")
  sensitive   = true
}
