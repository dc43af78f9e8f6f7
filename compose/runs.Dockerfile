# What stacks are applied in, as HEADGATE_RUNS_IMAGE: OpenTofu, git and ssh for modules and their providers, and iptables,
# by which a run's network is closed before the run begins. From the root of the repository:
#   docker build -f compose/runs.Dockerfile -t headgate-runs:1 .
# Terraform in its place: --build-arg TOFU_IMAGE=hashicorp/terraform:1.9 --build-arg PROGRAM=/bin/terraform
ARG BASE_IMAGE=debian:13-slim
ARG TOFU_IMAGE=ghcr.io/opentofu/opentofu:1.10-minimal

FROM ${TOFU_IMAGE} AS tofu

FROM ${BASE_IMAGE}
ARG PROGRAM=/usr/local/bin/tofu
RUN apt-get update \
  && apt-get install -y --no-install-recommends ca-certificates git iptables openssh-client \
  && rm -rf /var/lib/apt/lists/*
COPY --from=tofu ${PROGRAM} /usr/local/bin/tofu
# The arguments of a run come behind it.
ENTRYPOINT ["/usr/local/bin/tofu"]
