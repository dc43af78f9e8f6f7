#!/bin/sh
# Backups of Headgate's database, as the service "backup" of compose.yaml runs it.
#   run      writes a dump a day, at BACKUP_HOUR (UTC), and at once where the last one is missing; of no empty database
#   now      writes one now
#   health   ends with 1, and a sentence, where the last try failed or the last good dump is older than 36 hours
#   restore  FILE [DATABASE]: fills a database that is empty; FILE is a name in the folder, or "latest": the newest dump,
#            refused where the folder has dumps of several installations
# A file that is called headgate-….dump is whole: it gets that name when it was written, synced and read again.
set -eu

folder=${BACKUP_FOLDER:-/backups}
hour=${BACKUP_HOUR:-3}
days=${BACKUP_DAYS:-14}
late_seconds=129600
retry_seconds=${BACKUP_RETRY_SECONDS:-300}
# There while the last try of this container failed.
failed=${BACKUP_FAILED_MARK:-/tmp/backup-failed}

say() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $*"; }
refuse() {
  say "$*" >&2
  exit 1
}

is_whole() { case $1 in '' | *[!0-9]* | ?????*) return 1 ;; esac; }
is_whole "$hour" && [ "$hour" -le 23 ] || refuse "BACKUP_HOUR: must be a whole number from 0 to 23, not \"$hour\"."
is_whole "$days" && [ "$days" -ge 1 ] || refuse "BACKUP_DAYS: must be a whole number from 1 to 9999, not \"$days\"."
# 08 would be no number of a shell's.
hour=${hour#0}
hour=${hour:-0}

# Reads the password before each use, so that a new one needs no restart. Only this process and its children have it:
# the settings of the container do not show it.
read_password() {
  if [ -r "${POSTGRES_PASSWORD_FILE:-/run/secrets/postgres_password}" ]; then
    PGPASSWORD=$(cat "${POSTGRES_PASSWORD_FILE:-/run/secrets/postgres_password}")
    export PGPASSWORD
  fi
}
read_password

# The newest good dump, or nothing: their names are in order of time.
newest() {
  found=
  for each in "$folder"/headgate-*.dump; do
    if [ -e "$each" ]; then found=$each; fi
  done
  echo "$found"
}
made_at() { if [ -n "$1" ]; then date -u -r "$1" +%s; else echo 0; fi; }

# Names the installation that a dump is of by the secret that all its dumps share; nothing of a dump that was made before
# the first gateway had started. Never printed.
installation_of() {
  pg_restore --data-only --table=fleet_secrets --file=- "$1" | sed -n 's/.*\([0-9a-f]\{64\}\).*/\1/p'
}

# Fails where a new machine has made a dump of its own beside those of the old one: its dump is newer, and nearly empty.
latest() {
  found=
  known=
  for each in "$folder"/headgate-*.dump; do
    [ -e "$each" ] || continue
    own=$(installation_of "$each")
    [ -n "$own" ] || continue
    if [ -n "$known" ] && [ "$own" != "$known" ]; then
      refuse "There are dumps of several installations, $found and $each among them: name the file to restore." \
        "There are: $(ls "$folder")"
    fi
    found=$each
    known=$own
  done
  echo "$found"
}

# Of a database, without those of the schemas that are named after it; fails where it cannot be asked.
count_tables() {
  psql --no-psqlrc --no-password --tuples-only --no-align --dbname="$1" --command="
    select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast'${2:+, '$2'})"
}

# Leaves a mark where it fails, which health reports at once.
dump() {
  if write_dump; then
    rm -f "$failed"
  else
    : >"$failed"
    return 1
  fi
}

write_dump() {
  began=$(date -u +%s)
  name=headgate-$(date -u -d "@$began" +%Y-%m-%dT%H%M%SZ).dump
  part=$folder/.$name.part
  if ! (umask 077 && : >"$part") 2>/dev/null; then
    say "Nothing can be written to the folder of the backups: give it to user $(id -u), or set BACKUP_USER." >&2
    return 1
  fi
  # pg_dump syncs what it writes; a table of contents that can be read again stands at its end.
  # Who is signed in, and links that are open, stay out: a copy would bring back what has ended since.
  if pg_dump --exclude-table-data=sessions --exclude-table-data=sign_in_links --exclude-table-data=reset_links \
    --exclude-table-data=invitations --format=custom --no-password --file="$part" && pg_restore --list "$part" >/dev/null &&
    mv "$part" "$folder/$name"; then
    sync
    say "backup $name, $(wc -c <"$folder/$name") bytes"
    record || say "The backup $name is good, but could not be recorded: headgate_backup_age_seconds counts from an older one." >&2
    warn_of_key
    remove_old
  else
    rm -f "$part"
    last=$(newest)
    say "The backup failed; the last good one is ${last:-none}." >&2
    return 1
  fi
}

# Gateways publish the age of the newest record as headgate_backup_age_seconds.
record() {
  psql --no-psqlrc --no-password --quiet --dbname="${PGDATABASE:-headgate}" \
    --command="insert into backups (name, made_at) values ('$name', to_timestamp($began))"
}

# The gateway seals a copy of the platform key into the database where it has HEADGATE_BACKUP_PASSPHRASE.
warn_of_key() {
  key=$(psql --no-psqlrc --no-password --tuples-only --no-align --dbname="${PGDATABASE:-headgate}" --command="
    select id from platform_keys where sealed is null and position = (select max(position) from platform_keys)" \
    2>/dev/null) || return 0
  [ -z "$key" ] || say "The platform key $key is not in the backup: without the key nothing that it encrypts can be" \
    "read. Set HEADGATE_BACKUP_PASSPHRASE, or copy platform.key out of the volume \"state\"." >&2
}

# Only after a new one was made: where backups fail, none goes.
remove_old() {
  find "$folder" -maxdepth 1 -name 'headgate-*.dump' -mmin "+$((days * 1440))" | while read -r old; do
    if [ "$old" != "$folder/$name" ]; then rm -f "$old" && say "removed $old, older than $days days"; fi
  done
}

# One is due where none was made since the hour came last. So a machine that was off at that hour makes up for it.
is_due() {
  now=$(date -u +%s)
  came=$((now - (now - hour * 3600) % 86400))
  last=$(newest)
  [ "$(made_at "$last")" -lt "$came" ]
}

run() {
  trap 'exit 0' TERM INT
  rm -f "$folder"/.headgate-*.part
  while :; do
    pause=30
    if is_due; then
      read_password
      # Before the first gateway has filled it, and in the midst of a restore, there is nothing to keep. The list of
      # migrations, in a schema of its own, is there before the tables are, which come all at once.
      if tables=$(count_tables "${PGDATABASE:-headgate}" drizzle) && [ "$tables" = 0 ]; then
        pause=5
      elif ! dump; then
        pause=$retry_seconds
        say "It is tried again in $pause seconds." >&2
      fi
    fi
    # A signal ends a wait at once, and a sleep only when that is over.
    sleep "$pause" &
    wait $!
  done
}

health() {
  last=$(newest)
  [ ! -e "$failed" ] ||
    refuse "The last try to make a backup failed; the last good one is ${last:-none}: docker compose logs backup says why."
  [ -n "$last" ] || refuse 'There is no good backup yet: docker compose logs backup says why.'
  age=$(($(date -u +%s) - $(made_at "$last")))
  [ "$age" -le "$late_seconds" ] ||
    refuse "The last good backup, $last, is $((age / 3600)) hours old: docker compose logs backup says why."
  echo "the last good backup, $last, is $((age / 3600)) hours old"
}

restore() {
  case ${1:-} in
    '') refuse 'restore needs the name of a dump in the folder of the backups, or "latest".' ;;
    latest) file=$(latest) || exit 1 ;;
    */*) file=$1 ;;
    *) file=$folder/$1 ;;
  esac
  [ -n "$file" ] && [ -r "$file" ] || refuse "There is no backup ${file:-yet}. There are: $(ls "$folder")"
  database=${2:-${PGDATABASE:-headgate}}
  tables=$(count_tables "$database") || exit 1
  [ "$tables" = 0 ] || refuse "The database $database is not empty; a restore needs one that is."
  # All of it or nothing.
  pg_restore --no-password --dbname="$database" --exit-on-error --single-transaction "$file"
  say "restored $file into the database $database"
}

case ${1:-run} in
  run) run ;;
  now) dump ;;
  health) health ;;
  restore) restore "${2:-}" "${3:-}" ;;
  *) refuse "There is no \"$1\": run, now, health, or restore FILE [DATABASE]." ;;
esac
