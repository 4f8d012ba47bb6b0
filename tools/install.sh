#!/bin/sh
# Installs what the tests need beside Go: a real redis-server.
set -eu
if command -v redis-server >/dev/null 2>&1; then
  exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "the tests need redis-server 6.2 or newer on the PATH: please install it (brew install redis, dnf install redis, ...)" >&2
  exit 1
fi
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server
