#!/bin/sh
# Backups of Headgate's database, as the service "backup" of compose.yaml runs it.
#   run      writes a dump a day, at BACKUP_HOUR (UTC), and at once where the last one is missing; of no empty database
#   now      writes one now
#   health   ends with 1, and a sentence, where the last try failed or the last good dump is older than 36 hours
#   cat      FILE: prints a dump that is whole, for a copy elsewhere
#   restore  FILE [DATABASE]: fills an empty database
#   restore  --replace FILE [DATABASE]: replaces all that a database holds, after a dump of that; --discard writes none
# FILE is a name in the folder, "-" for a dump on the input, or "latest": the newest dump, refused where the folder has
# dumps of several installations, or one that cannot be read. A restore is one transaction: a failure leaves the database
# as it was. It needs no role that the dump names: everything belongs to the role that restores.
# A file that is called headgate-….dump is whole: it gets that name when it was written, synced and read again.
# "latest" passes over headgate-replaced-….dump, the dumps of what restores replaced.
set -eu
# Dumps hold stored prompts: only their owner may read them.
umask 077
# The header of a dump has local time without its zone.
export TZ=UTC

folder=${BACKUP_FOLDER:-/backups}
hour=${BACKUP_HOUR:-3}
days=${BACKUP_DAYS:-14}
late_seconds=129600
retry_seconds=${BACKUP_RETRY_SECONDS:-300}
# There while the last try of this container failed.
failed=${BACKUP_FAILED_MARK:-/tmp/backup-failed}
# Touched by each restore: a dump is due until one is newer than this file.
restored=$folder/.restored

say() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $*"; }
refuse() {
  say "$*" >&2
  exit 1
}
ask() { psql --no-psqlrc --no-password --quiet --tuples-only --no-align --set=VERBOSITY=terse "$@"; }

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
  for each in "$folder"/headgate-[0-9]*.dump; do
    if [ -e "$each" ]; then found=$each; fi
  done
  echo "$found"
}
made_at() { if [ -n "$1" ]; then date -u -r "$1" +%s; else echo 0; fi; }

# Names the installation that a dump is of by the secret that all its dumps share; nothing of a dump that was made before
# the first gateway had started. Never printed.
installation_of() {
  secrets=$(pg_restore --data-only --table=fleet_secrets --file=- "$1" 2>/dev/null) || return 1
  echo "$secrets" | sed -n 's/.*\([0-9a-f]\{64\}\).*/\1/p'
}

# Says why pg_restore could not read a file. The second word is what messages call it.
refuse_dump() {
  [ -r "$1" ] ||
    refuse "$2 cannot be read by user $(id -u): give it to that user, or set BACKUP_USER. Nothing was changed."
  case $(LC_ALL=C pg_restore --list "$1" 2>&1 >/dev/null) in
    *'unsupported version'*)
      refuse "$2 was written by a newer PostgreSQL than this one, $(pg_restore --version). Nothing was changed;" \
        'set POSTGRES_IMAGE as on the machine that wrote it.'
      ;;
  esac
  refuse "$2 is not whole. Nothing was changed. There are: $(ls "$folder")"
}

# Fails where a new machine has made a dump of its own beside those of the old one: its dump is newer, and nearly empty.
# An unreadable dump is rejected where it may be the newest one: where no newer one can be read.
latest() {
  found=
  known=
  unread=
  for each in "$folder"/headgate-[0-9]*.dump; do
    [ -e "$each" ] || continue
    if ! own=$(installation_of "$each"); then
      unread=$each
      continue
    fi
    [ -n "$own" ] || continue
    if [ -n "$known" ] && [ "$own" != "$known" ]; then
      refuse "There are dumps of several installations, $found and $each among them: name the file to restore." \
        "There are: $(ls "$folder")"
    fi
    found=$each
    known=$own
    unread=
  done
  [ -z "$unread" ] || refuse_dump "$unread" "$unread"
  echo "$found"
}

# Of a database, without those of the schemas that are named after it; fails where it cannot be asked.
count_tables() {
  ask --dbname="$1" --command="
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
  if write_file "$name" "${PGDATABASE:-headgate}"; then
    record || say "The backup $name is good, but could not be recorded: headgate_backup_age_seconds counts from an older one." >&2
    warn_of_key
    remove_old
  else
    last=$(newest)
    say "The backup failed; the last good one is ${last:-none}." >&2
    return 1
  fi
}

# Creates an empty file in the folder.
create() {
  (: >"$1") 2>/dev/null && return
  say "Nothing can be written to the folder of the backups: give it to user $(id -u), or set BACKUP_USER." >&2
  return 1
}

# Writes a whole dump of a database under a name in the folder, or nothing.
write_file() {
  part=$folder/.$1.$$.part
  create "$part" || return 1
  # pg_dump syncs what it writes; a table of contents that can be read again stands at its end.
  # Who is signed in, and links that are open, stay out: a copy would bring back what has ended since.
  if pg_dump --exclude-table-data=sessions --exclude-table-data=sign_in_links --exclude-table-data=reset_links \
    --exclude-table-data=invitations --format=custom --no-password --dbname="$2" --file="$part" &&
    pg_restore --list "$part" >/dev/null && mv "$part" "$folder/$1"; then
    sync
    say "backup $1, $(wc -c <"$folder/$1") bytes"
  else
    rm -f "$part"
    return 1
  fi
}

# Gateways publish the age of the newest record as headgate_backup_age_seconds.
record() {
  ask --dbname="${PGDATABASE:-headgate}" \
    --command="insert into backups (name, made_at) values ('$name', to_timestamp($began))"
}

# The gateway seals a copy of the platform key into the database where it has HEADGATE_BACKUP_PASSPHRASE.
warn_of_key() {
  key=$(ask --dbname="${PGDATABASE:-headgate}" --command="
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

# One is due after a restore, and where none was made since the hour came last. So a machine that was off at that hour
# makes up for it.
is_due() {
  # Written while a restore waited, a dump is of the books from before.
  if [ -e "$restored" ] && ! [ "$(newest)" -nt "$restored" ]; then return 0; fi
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

# Sets file to the path of the dump that a word names, and shown to what messages call it. Reads all of it.
choose() {
  case ${1:-} in
    '') refuse 'Name a dump in the folder of the backups, "latest", or "-" for one on the input.' ;;
    latest) file=$(latest) || exit 1 ;;
    -)
      file=$folder/.headgate-input-$$.part
      trap 'rm -f "$file"' EXIT
      create "$file" && cat >"$file" || refuse 'The dump on the input could not be kept. Nothing was changed.'
      ;;
    */*) file=$1 ;;
    *) file=$folder/$1 ;;
  esac
  [ -n "$file" ] && [ -e "$file" ] || refuse "There is no backup ${file:-yet}. There are: $(ls "$folder")"
  case $1 in -) shown='the dump on the input' ;; *) shown=$file ;; esac
  pg_restore --file=/dev/null "$file" || refuse_dump "$file" "$shown"
}

# Fails while a gateway is connected. One that starts now waits for the lock before it uses anything.
unused="
  do \$\$ begin
    perform pg_advisory_xact_lock(hashtext('headgate migrations'));
    if exists (select from pg_stat_activity where datname = current_database() and application_name like 'headgate%') then
      raise 'A gateway, or a command of Headgate, is using the database: stop it first.';
    end if;
  end \$\$;"

# In place: a new database would have another OID, which spools and names in Redis contain.
emptied="
  do \$\$ declare own name; begin
    for own in select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema' loop
      execute format('drop schema %I cascade', own);
    end loop;
  end \$\$;
  create schema public authorization pg_database_owner;
  grant usage on schema public to public;
  comment on schema public is 'standard public schema';"

# Notes for verify-books that what was committed after the dump is lost, and for headgate_backup_age_seconds that there is
# a dump of what the database holds. Dumps of older versions have no tables for it.
noted() {
  echo "
  do \$\$ begin
    if to_regclass('public.database_changes') is not null then
      insert into public.database_changes (gateway_id, change, known_at, noticed_at)
      values ('00000000-0000-0000-0000-000000000000', 'restored', '$1', clock_timestamp());
    end if;
    if to_regclass('public.backups') is not null then
      insert into public.backups (name, made_at) values ('restored dump', '$1');
    end if;
  end \$\$;"
}

# Prints the grants of a dump. One to a role that this server does not have is reported, and left out.
grants() {
  printf '%s\n' '\set ON_ERROR_STOP off' '\set ON_ERROR_ROLLBACK on'
  pg_restore --list "$file" | grep -E '^[0-9]+; [0-9]+ [0-9]+ (DEFAULT )?ACL ' |
    pg_restore --use-list=/dev/stdin --no-owner --file=- "$file" &&
    printf '%s\n' '\set ON_ERROR_STOP on' '\set ON_ERROR_ROLLBACK off'
}

# Prints the whole transaction. A dump that cannot be read to its end never comes to the commit.
transaction() {
  echo 'begin; set local client_min_messages = warning;'
  [ "$how" = fill ] || echo "$unused $emptied"
  pg_restore --no-owner --no-privileges --file=- "$file" && grants && noted "$made" &&
    printf '%s\n' '\echo committing' 'commit;' '\echo committed'
}

# Runs it, and prints how far it came. An error of many statements, such as grants to one role, is reported once.
transact() {
  {
    transaction | ask --set=ON_ERROR_STOP=1 --output=/dev/null --dbname="$database" 2>&1 >&3 |
      sed 's/^psql:<stdin>:[0-9]*: //' | sort -u >&2
  } 3>&1
}

restore() {
  how=fill
  case ${1:-} in
    --replace | --discard)
      how=${1#--}
      shift
      ;;
  esac
  choose "${1:-}"
  database=${2:-${PGDATABASE:-headgate}}
  made=$(pg_restore --list "$file" | sed -n 's/^; *Archive created at //p')
  tables=$(count_tables "$database") || exit 1
  replaced=
  if [ "$tables" != 0 ]; then
    [ "$how" != fill ] ||
      refuse "The database $database is not empty. Nothing was changed; restore --replace replaces all that it holds."
    ask --dbname="$database" --command="$unused" || refuse 'Nothing was changed.'
    if [ "$how" = replace ]; then
      replaced=headgate-replaced-$(date -u +%Y-%m-%dT%H%M%SZ).dump
      write_file "$replaced" "$database" ||
        refuse 'What the database holds could not be dumped. Nothing was changed; restore --discard replaces it without a dump.'
    fi
  fi
  outcome=$(transact) || true
  case $outcome in
    *committed) ;;
    *committing) refuse "It is not known whether $shown was restored: PostgreSQL did not answer the commit." \
      'Run the same restore again before a gateway starts.' ;;
    *) refuse "$shown could not be restored. Nothing was changed." ;;
  esac
  [ "$database" != "${PGDATABASE:-headgate}" ] || create "$restored" || true
  say "restored $shown, of $made, into the database $database"
  [ -z "$replaced" ] || say "What it held before is in $replaced, for $days days."
}

print() {
  choose "${1:-}"
  cat "$file"
}

case ${1:-run} in
  run) run ;;
  now) dump ;;
  health) health ;;
  cat) print "${2:-}" ;;
  restore)
    shift
    restore "$@"
    ;;
  *) refuse "There is no \"$1\": run, now, health, cat FILE, or restore [--replace|--discard] FILE [DATABASE]." ;;
esac
