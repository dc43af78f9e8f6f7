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

# Refuses where the gateway $1 was started with a file that the other arguments do not name. A file is known by its name
# without its folder, since a clone may move.
require_files_of() {
  container=$1
  shift
  label=com.docker.compose.project.config_files
  started_with=$(docker inspect --format "{{index .Config.Labels \"$label\"}}" "$container")
  { printf '%s\n' "$@" '' && echo "$started_with" | tr , '\n'; } | awk -v line="sh $0" -v separator="${COMPOSE_PATH_SEPARATOR:-:}" '
    function name_of(path) { sub(".*/", "", path); return path }
    function folder_of(path) { sub("[^/]*$", "", path); return path }
    function find(path,  i) {
      for (i = 1; i <= count; i += 1) if (!(i in used) && name_of(given[i]) == name_of(path)) return i
    }

    !is_label && $0 == "" { is_label = 1; if (!count) count = split(ENVIRON["COMPOSE_FILE"], given, separator); next }
    !is_label && is_file { given[++count] = $0; is_file = 0; next }
    !is_label && /^(-f|--file)$/ { is_file = 1; next }
    !is_label && sub(/^(-f|--file=)/, "") { given[++count] = $0; next }
    !is_label { line = line " " $0; next }

    $0 != "" && (i = find($0)) {
      used[i] = 1
      line = line " -f " given[i]
      # Where both clones have the rest of their files.
      if (from == "") { from = folder_of($0); to = folder_of(given[i]) }
      next
    }
    $0 != "" {
      path = from != "" && index($0, from) == 1 ? to substr($0, length(from) + 1) : $0
      missing = missing " " path
      line = line " -f " path
    }
    END {
      if (missing == "") exit
      for (i = 1; i <= count; i += 1) if (!(i in used)) line = line " -f " given[i]
      print "The gateways were started with more files:" missing
      print "New gateways would run without what these files say. Type:\n  " line
      print "To leave a file out on purpose, use docker compose up -d, which replaces all gateways at once."
      exit 1
    }' >&2
}

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
