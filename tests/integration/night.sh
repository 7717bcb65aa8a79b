#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An agent's night, for docs/INVESTIGATE.md and the test of the audit log: it edits a file, runs a
# program from standard input, reads a forbidden file, tries to send data out and runs a command for
# too long. Nothing leaves the host: the keeper refuses the name before any DNS query. HUTCH is the
# program, NIGHT_TIMEOUT the time limit of a command. Prints the id of the ended sandbox, whose
# records are kept.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/agents"
cat >"$work/agents/night.yaml" <<'AGENT'
agent:
  name: night
  type: data
egress:
  domains:
    - api.example.com:443
AGENT
box=$("$HUTCH" create -I "$work" -a night --best-effort --memory 256MiB --timeout "${NIGHT_TIMEOUT:-3s}" -e API_TOKEN=s3cr3t-5a1c9e77)
printf 'name,amount\nada,3\ngrace,4\n' >"$work/sales.csv"
"$HUTCH" cp "$work/sales.csv" "$box:/workspace/sales.csv" >&2
"$HUTCH" exec "$box" -- head -n 1 sales.csv >&2
"$HUTCH" exec -i "$box" -- python3 - >&2 <<'CODE'
import csv
print(sum(int(row["amount"]) for row in csv.DictReader(open("sales.csv"))))
CODE
"$HUTCH" exec "$box" -- sh -c 'cat /etc/shadow; ls /root' >&2 || :
"$HUTCH" exec "$box" -- python3 -c 'import socket; socket.create_connection(("collector.example.net", 443))' >&2 || :
"$HUTCH" exec "$box" -- sh -c 'while :; do :; done' >&2 || :
"$HUTCH" kill "$box"
