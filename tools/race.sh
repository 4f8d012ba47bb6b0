#!/bin/sh
# Runs a test binary under the race detector, and once more if the detector itself has crashed (see golang/go#78156) before
# anything failed.
set -u
said=$(mktemp) && status=$(mktemp) || exit 1
trap 'rm -f "$said" "$status"' EXIT
for attempt in first last; do
	{
		"$@"
		echo $? >"$status"
	} 2>&1 | tee "$said"
	if [ $attempt = last ] || ! grep -q 'ThreadSanitizer: CHECK failed' "$said" || grep -qE 'DATA RACE|--- FAIL' "$said"; then
		exit "$(cat "$status")"
	fi
	echo "The race detector has crashed, and the tests are run again."
done
