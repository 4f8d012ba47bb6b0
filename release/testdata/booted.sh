#!/bin/sh
# Runs in a Debian that was booted with the package installed: what the unit does, as its users see it. Each step
# prints "ok", or the script ends with an error.
set -eux
step() { echo "step: $*"; }
wait_for() { # waits until a command succeeds
  for _ in $(seq 300); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.1
  done
  echo "in vain: $*"
  return 1
}
take() { curl --silent --show-error --max-time 20 -d '{"policy": "'"$1"'", "key": "me"}' http://127.0.0.1:7878/v1/take; }
trap 'echo "failed: $?"; systemctl status --no-pager --full drawgate || true; journalctl --no-pager -u drawgate || true' EXIT

step "the service runs, as its user, since the system booted"
systemctl is-enabled drawgate
wait_for systemctl is-active drawgate
wait_for curl --silent --fail http://127.0.0.1:7878/healthz
pid=$(systemctl show --property MainPID --value drawgate)
test "$(stat -c %U /proc/"$pid")" = drawgate
test "$(awk '/^CapEff/ {print $2}' /proc/"$pid"/status)" = 0000000000000000
# 65536, or what this machine allows at most: more than the 1024 of a service that asks for nothing.
awk '/^Max open files/ && $4 == $5 && $4 > 1024 {found = 1} END {exit !found}' /proc/"$pid"/limits

step "a decision, kept in SQLite"
take sample | grep '"allowed":true.*"remaining":9'
test -f /var/lib/drawgate/drawgate.db
test "$(stat -c '%U %a' /var/lib/drawgate/drawgate.db)" = "drawgate 600"
systemctl restart drawgate
wait_for curl --silent --fail http://127.0.0.1:7878/healthz
take sample | grep '"allowed":true.*"remaining":8'

step "metrics, with those of the process"
curl --silent --show-error http://127.0.0.1:7879/metrics >/tmp/metrics
grep '^process_start_time_seconds' /tmp/metrics
grep '^process_resident_memory_bytes' /tmp/metrics

step "a reload with the unit"
sed -i 's/^policies:/policies:\n  more: {limits: [{name: minute, rolling: 1m, amount: 3}]}/' /etc/drawgate/drawgate.yaml
systemctl reload drawgate
wait_for sh -c 'curl --silent -d "{\"policy\": \"more\", \"key\": \"me\"}" http://127.0.0.1:7878/v1/take | grep -q allowed'
cp /etc/drawgate/drawgate.yaml /tmp/good.yaml
echo 'nonsense: true' >>/etc/drawgate/drawgate.yaml
if systemctl reload drawgate; then
  echo "a file with a mistake was reloaded"
  exit 1
fi
systemctl is-active drawgate
take sample | grep '"allowed":true.*"remaining":7'

step "an upgrade with a mistake in the file says so, and leaves the service alone"
pid=$(systemctl show --property MainPID --value drawgate)
dpkg --install /files/drawgate_0.1.0-1_*.deb >/tmp/upgrade 2>&1
cat /tmp/upgrade
grep nonsense /tmp/upgrade
grep 'was NOT restarted' /tmp/upgrade
test "$(systemctl show --property MainPID --value drawgate)" = "$pid"
cp /tmp/good.yaml /etc/drawgate/drawgate.yaml
dpkg --install /files/drawgate_0.1.0-1_*.deb
wait_for curl --silent --fail http://127.0.0.1:7878/healthz
test "$(systemctl show --property MainPID --value drawgate)" != "$pid"

step "a secret that the server does not have yet fails a reload"
cp /etc/drawgate/drawgate.yaml /tmp/good.yaml
sed -i 's,^server:,server:\n  tokens: [{name: new\, role: take\, token_env: NEW_SECRET}],' /etc/drawgate/drawgate.yaml
printf 'NEW_SECRET=0123456789abcdef\n' >/etc/drawgate/secrets.env
if systemctl reload drawgate; then
  echo "a reload succeeded that is not in force"
  exit 1
fi
systemctl restart drawgate
wait_for curl --silent --fail http://127.0.0.1:7878/healthz
take sample | grep unauthorized
systemctl reload drawgate
rm /etc/drawgate/secrets.env
cp /tmp/good.yaml /etc/drawgate/drawgate.yaml
systemctl restart drawgate
wait_for curl --silent --fail http://127.0.0.1:7878/healthz

step "a restart with a mistake in the file fails"
sed -i 's,^server:,servre:,' /etc/drawgate/drawgate.yaml
if systemctl restart drawgate; then
  echo "the service does not run, and its restart succeeded"
  exit 1
fi
cp /tmp/good.yaml /etc/drawgate/drawgate.yaml
systemctl restart drawgate
curl --silent --fail http://127.0.0.1:7878/healthz

step "TLS files that only its group may read, and a secret"
install -m 0640 -g drawgate /tls/server.crt /tls/server.key /etc/drawgate/
printf 'DRAWGATE_TAKE_TOKEN=0123456789abcdef\n' >/etc/drawgate/secrets.env
chmod 0600 /etc/drawgate/secrets.env
sed -i 's,^server:,server:\n  tls: {cert: /etc/drawgate/server.crt\, key: /etc/drawgate/server.key},' /etc/drawgate/drawgate.yaml
systemctl restart drawgate
wait_for curl --silent --fail --cacert /tls/ca.crt https://localhost:7878/healthz
curl --silent --cacert /tls/ca.crt -d '{"policy": "sample", "key": "me"}' https://localhost:7878/v1/take | grep unauthorized
curl --silent --cacert /tls/ca.crt -H 'Authorization: Bearer 0123456789abcdef' -d '{"policy": "sample", "key": "me"}' https://localhost:7878/v1/take | grep '"allowed":true'

step "commands as its user open the same file"
runuser -u drawgate -- drawgate status --config /etc/drawgate/drawgate.yaml --policy sample --key me

step "it may write nowhere else"
pid=$(systemctl show --property MainPID --value drawgate)
nsenter --target "$pid" --mount -- sh -c '! touch /etc/drawgate/x 2>/dev/null && ! touch /usr/x 2>/dev/null && touch /var/lib/drawgate/x && rm /var/lib/drawgate/x'

step "a stop is clean"
systemctl stop drawgate
test "$(systemctl show --property Result --value drawgate)" = success
trap - EXIT
echo "all is well"
