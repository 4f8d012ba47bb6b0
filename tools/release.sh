#!/bin/sh
# Installs what the long tests of the release need, from Debian's packages: they install its packages in Debians of
# their own, boot one, and run the image.
set -eu
needs="debootstrap:debootstrap lintian:lintian rpm:rpm runc:runc umoci:umoci systemd-nspawn:systemd-container ip:iproute2 ruby:ruby"
PATH="$PATH:/usr/sbin:/sbin"
packages=
for need in $needs; do
  command -v "${need%%:*}" >/dev/null 2>&1 || packages="$packages ${need##*:}"
done
[ -z "$packages" ] && exit
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
apt="apt-get -qq -o Acquire::Retries=5 -o DPkg::Lock::Timeout=600"
# shellcheck disable=SC2086 # several words
$sudo $apt update
# shellcheck disable=SC2086 # several words
$sudo env DEBIAN_FRONTEND=noninteractive $apt install -y --no-install-recommends $packages
