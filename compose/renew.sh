#!/bin/sh
# Renews the gateways one after the other: each stops when the proxy sends it nothing more, and the next one stops when
# the new one takes requests. Takes the arguments of docker compose that name the files, or COMPOSE_FILE: sh compose/renew.sh -f …
# The number of gateways is a setting, GATEWAYS: a renewal that was broken off is completed by the next one.
set -eu

# Whatever docker compose is called here.
compose=${COMPOSE:-docker compose}
gateways() { $compose "$@" ps -q gateway; }
create_missing() { $compose "$@" up -d --no-deps --no-recreate gateway; }

# Node is in the image, curl is not.
ready="fetch('http://127.0.0.1:8080/readyz').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"
is_ready() { docker exec "$1" node -e "$ready" 2> /dev/null; }

renew() {
  container=$1
  shift
  # Within its stop_grace_period.
  docker stop "$container"
  docker rm "$container"
  create_missing "$@"
  for new in $(gateways "$@"); do
    case $old in *"$new"*) continue ;; esac
    is_ready "$new" && continue
    echo "Waits until the new gateway $new is ready. Why it is not: docker logs $new"
    until is_ready "$new"; do sleep 1; done
  done
}

# Prints the files that the arguments name with -f or --file, or else COMPOSE_FILE, one a line.
named_files() {
  named=
  while [ $# -gt 0 ]; do
    case $1 in
      -f | --file) if [ $# -gt 1 ]; then shift; fi; named=1 && printf '%s\n' "$1" ;;
      --file=*) named=1 && printf '%s\n' "${1#--file=}" ;;
      -f=*) named=1 && printf '%s\n' "${1#-f=}" ;;
      -f*) named=1 && printf '%s\n' "${1#-f}" ;;
    esac
    shift
  done
  if [ -z "$named" ]; then printf '%s' "${COMPOSE_FILE:-}" | tr "${COMPOSE_PATH_SEPARATOR:-:}" '\n'; fi
}

# Fails if the other arguments do not name all files that the gateway $1 was started with, in the same order. More files
# may be named. Files are compared by name without folder, since a clone may move. Where nothing names files, Compose
# finds them as it did before.
require_files_of() (
  label=com.docker.compose.project.config_files
  # The label has the paths with commas between them. docker compose writes absolute paths, so that a comma that no slash
  # follows belongs to a path; docker-compose 1 writes them as they were typed.
  files=$(docker inspect --format "{{index .Config.Labels \"$label\"}}" "$1" | sed -e '/^\//!s#,#\
#g' -e 's#,/#\
/#g')
  shift
  set -f
  IFS='
'
  set -- $(named_files "$@")
  if [ $# = 0 ]; then exit; fi
  for path in $files; do
    while [ $# -gt 0 ] && [ "${1##*/}" != "${path##*/}" ]; do shift; done
    if [ $# -gt 0 ]; then shift && continue; fi
    echo "A file is missing or not in its place: $path. New gateways would have other settings." >&2
    echo "Name all files that the gateways were started with, in this order:" $files >&2
    echo 'To leave a file out on purpose, use docker compose up -d, which replaces all gateways at once.' >&2
    exit 1
  done
)

old=$(gateways "$@")
if [ -z "$old" ]; then
  echo "No gateway of these files runs. Name all files that the gateways were started with." >&2
  exit 1
fi
for each in $old; do require_files_of "$each" "$@"; done
create_missing "$@"
old=$(gateways "$@")
serving=
# One that is not ready goes first, so that those that serve stay until its successor is ready.
for each in $old; do
  if is_ready "$each"; then serving="$serving $each"; else renew "$each" "$@"; fi
done
for each in $serving; do renew "$each" "$@"; done
echo "Renewed: $(gateways "$@" | wc -l) gateways."
