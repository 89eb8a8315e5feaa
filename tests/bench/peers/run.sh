#!/usr/bin/env bash
# rejoin and other servers of streams, side by side: installs nats-server and
# Centrifugo by Go's module proxy, each pinned, builds rejoin from this tree, and has
# them do the same rows in turn. See docs/performance.md.
#
#   tests/bench/peers/run.sh [FLAGS]        flags of cmd/rejoin/internal/bench/peers: -rows, -curves, -peers, -n, -json, -quick
#   tests/bench/peers/run.sh curves DIR [FLAGS]  every curve, measured three times a point, as pictures in DIR
#   tests/bench/peers/run.sh fsync [FLAGS]  `rejoin bench` as it is, and then with a device whose every fsync takes
#                                           FSYNC_US (2000) µs longer (needs strace); flags of rejoin bench
#
# PEERS_BIN keeps the programs between runs (default: a temporary directory).
set -euo pipefail
cd "$(dirname "$0")/../../.."

nats=github.com/nats-io/nats-server/v2@v2.15.2
centrifugo=github.com/centrifugal/centrifugo/v6@v6.9.1

bin=${PEERS_BIN:-}
if [ -z "$bin" ]; then
  bin=$(mktemp -d)
  trap 'rm -rf "$bin"' EXIT
fi
mkdir -p "$bin"
bin=$(cd "$bin" && pwd)
CGO_ENABLED=0 go build -trimpath -o "$bin/rejoin" ./cmd/rejoin

if [ "${1:-}" = fsync ]; then
  shift
  [ $# -gt 0 ] || set -- --rows rate200,rate2000,sessions,fan,flood,command
  slow="strace -f --seccomp-bpf -qq -o /dev/null -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_exit=${FSYNC_US:-2000}"
  echo "== as the device is"
  "$bin/rejoin" bench --durability always,20ms "$@"
  echo
  echo "== each fsync ${FSYNC_US:-2000} µs longer; figures of CPU include strace's stops"
  "$bin/rejoin" bench --durability always,20ms --wrap "$slow" "$@"
  exit
fi

# In a directory of their own: go.mod stays the product's.
for module in "$nats" "$centrifugo"; do
  name=${module%@*}
  name=${name%/v[0-9]}
  [ -x "$bin/${name##*/}" ] || (cd "$bin" && GOFLAGS='' GOBIN="$bin" go install "$module")
done
go build -o "$bin/peers" ./cmd/rejoin/internal/bench/peers
if [ "${1:-}" = curves ]; then
  mkdir -p "$2"
  pictures=$(cd "$2" && pwd)
  shift 2
  (cd tests/bench/curves && go build -o "$bin/curves" .)
  failed=0
  "$bin/peers" -bin "$bin" -curves all -peers rejoin,raw,centrifugo,nats,jetstream -n 3 -json "$bin/points.jsonl" "$@" || failed=1 # void points are left out
  "$bin/curves" "$bin/points.jsonl" "$pictures"
  exit "$failed"
fi
"$bin/peers" -bin "$bin" "$@"
