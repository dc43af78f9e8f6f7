#!/bin/sh
# Renews the gateways one after the other: each stops when the proxy sends it nothing more, and the next one stops when
# the new one takes requests. Takes the arguments of docker compose that name the files: sh compose/renew.sh -f …
set -eu

# Of whatever is called docker compose here.
compose=${COMPOSE:-docker compose}
running() { $compose "$@" ps -q gateway; }
# Node is in the image, curl is not.
ready="fetch('http://127.0.0.1:8080/readyz').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"

old=$(running "$@")
count=$(echo "$old" | wc -l)
for container in $old; do
  docker stop --time 90 "$container"
  docker rm "$container"
  $compose "$@" up -d --no-deps --no-recreate --scale "gateway=$count" gateway
  for new in $(running "$@"); do
    until docker exec "$new" node -e "$ready"; do sleep 1; done
  done
done
