#!/usr/bin/env bash
# Installs pi and the Node.js it needs, as npm/package-lock.json pins them, into
# the folder $1 (default: where the tests look). Needs npm; does nothing when it
# is done already.
set -eu
from=$(cd "$(dirname "$0")/npm" && pwd)
to=${1:-${REJOIN_PI_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/rejoin-test/pi}}
mkdir -p "$to"
if cmp -s "$from/package-lock.json" "$to/installed"; then
  exit 0
fi
rm -f "$to/installed"
cp "$from/package.json" "$from/package-lock.json" "$to"
# No script of a package is run: none is needed. The Node.js that runs npm may be older than pi's.
(cd "$to" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
"$to/node_modules/.bin/node" "$to/node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js" --version
cp "$from/package-lock.json" "$to/installed"
