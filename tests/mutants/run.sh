#!/usr/bin/env bash
# Puts each known mistake into a copy of the tree and runs the kill test on it.
#
#   run.sh [NAME...]      names without suffix; none: all
#
# NAME.mutant.patch must make the test fail, and its failure names the promise that
# broke. NAME.control.patch must let it pass: it holds only the adversity (lost
# live records, say) that the mutant of that name comes with, so that the failure
# is the mistake's and not the adversity's.
# ROUNDS (6) is how many deaths a mutant may survive; TRIES (3) how often it is run.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
rounds=${ROUNDS:-6}
tries=${TRIES:-3}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
failed=0

# attempt PATCH: builds the patched tree and runs the kill test with its binary.
attempt() {
  rm -rf "$copy/tree" && mkdir "$copy/tree" || return 2
  (cd "$root" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy/tree") || return 2
  (cd "$copy/tree" && git apply --unsafe-paths --directory="$copy/tree" "$1") 2>"$copy/apply" ||
    (cd "$copy/tree" && patch -s -p1 <"$1") || return 2
  (cd "$copy/tree" && go build -o "$copy/rejoin" ./cmd/rejoin) || return 2
  (cd "$root" && REJOIN_BIN="$copy/rejoin" KILL_ROUNDS=$rounds go test -count=1 -timeout 20m -run TestKill ./tests/kill) >"$copy/out" 2>&1
}

for patch in "$here"/*.patch; do
  [ -e "$patch" ] || { echo "no patches in $here"; exit 1; }
  file=$(basename "$patch")
  name=${file%.patch}
  if [ $# -gt 0 ]; then
    case " $* " in *" ${name%.*} "*) ;; *) continue ;; esac
  fi
  seen=0
  for ((i = 1; i <= tries; i++)); do
    attempt "$patch"
    code=$?
    [ $code -eq 2 ] && ! grep -q . "$copy/out" 2>/dev/null && break
    [ $code -ne 0 ] && { seen=$i; break; }
    case $name in *.control) break ;; esac
  done
  why=$(grep -m1 -oE 'broke [^:]+:.*' "$copy/out" 2>/dev/null | cut -c1-160)
  case $name in
    *.control)
      if [ "$code" -eq 0 ]; then echo "ok    $name: the test passes"; else echo "FAIL  $name: the test fails without the mistake: $why"; failed=1; fi ;;
    *)
      if [ "$seen" -gt 0 ] && [ -n "$why" ]; then echo "ok    $name: found at try $seen: $why"; else echo "FAIL  $name: not found in $tries tries of $rounds rounds (status $code)"; failed=1; fi ;;
  esac
done
exit $failed
