#!/bin/bash
# Installs the server binaries of PostgreSQL, from which `make test` and `make run` start a private
# server. If they are already installed where pgembed.FindBinDir searches, it does nothing. On
# Debian and similar systems, it installs Debian's package, without a cluster or a service. On other
# systems, it prints what to install.
set -euo pipefail

holds_server() { [ -f "$1/postgres" ] && [ -x "$1/postgres" ] && [ -x "$1/initdb" ]; }

found() {
  if [ -n "${PG_BINDIR:-}" ]; then
    holds_server "$PG_BINDIR" && return 0
    echo "PG_BINDIR=$PG_BINDIR does not contain postgres and initdb" >&2
    exit 1
  fi
  if command -v pg_config >/dev/null && holds_server "$(pg_config --bindir)"; then return 0; fi
  local dir
  for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin \
    /usr/local/opt/postgresql@*/bin /Library/PostgreSQL/*/bin /Applications/Postgres.app/*/*/*/bin \
    /usr/local/pgsql/bin /usr/lib*/pgsql; do
    holds_server "$dir" && return 0
  done
  return 1
}

say_what_to_install() {
  cat >&2 <<'TEXT'
PostgreSQL's server binaries (15 or newer) are needed and were not found. Install them:
  Debian, Ubuntu   apt-get install postgresql
  Fedora           dnf install postgresql-server
  Arch             pacman -S postgresql
  Alpine           apk add postgresql
  macOS            brew install postgresql@18
or set PG_BINDIR to the directory of postgres and initdb.
TEXT
  exit 1
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif ! command -v sudo >/dev/null; then
    echo "installing PostgreSQL needs root, and there is no sudo here" >&2
    say_what_to_install
  elif [ -t 0 ]; then
    sudo "$@"
  else
    sudo -n "$@" # without a terminal, no one can type a password
  fi
}

install_debian() {
  echo "installing PostgreSQL's server from the distribution's packages" >&2
  # The package must not create a cluster, because nothing here needs one, and without a cluster no
  # service starts. This setting is removed at the end. Other settings of the machine are kept.
  local setting=/etc/postgresql-common/createcluster.d/progressor-no-cluster.conf
  as_root mkdir -p "${setting%/*}"
  echo 'create_main_cluster = false' | as_root tee "$setting" >/dev/null
  trap "as_root rm -f '$setting'" EXIT
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update </dev/null
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends postgresql </dev/null
}

found && exit 0
if [ -f /etc/debian_version ] && command -v apt-get >/dev/null; then
  install_debian
  found && exit 0
fi
say_what_to_install
