#!/usr/bin/env bash
# Puts each known mistake into a copy of the tree and runs the test that must
# find it.
#
#   run.sh [NAME...]      names without suffix; none: all
#
# A patch begins with the lines Promise:, Mistake: and Run:. NAME.mutant.patch must
# make Run fail. NAME.control.patch must let it pass: it holds only the adversity
# (lost live records, say) that the mutant of that name comes with, so that the
# failure is the mistake's and not the adversity's.
#
# A line Soak: names the check of tests/model that finds the mistake in the soak
# test, too. With SOAK=1 each patch that has one is put to that test, and that check
# must speak. SOAK_ROUNDS (28) is the budget.
#
# ROUNDS (30): how often the kill test kills per try. TRIES (3): how often a mutant
# is run before it counts as not found.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tries=${TRIES:-3}
copy=${MUTANTS_DIR:-${TMPDIR:-/tmp}/rejoin-mutants-$(id -u)} # fixed, so that the build cache helps
export KILL_ROUNDS=${ROUNDS:-30}
soak=
[ "${SOAK:-0}" = 1 ] && soak="SOAK_ROUNDS=${SOAK_ROUNDS:-28} go test -count=1 -timeout 30m -v -run TestSoak ./tests/soak"
mkdir -p "$copy" || exit 2
exec 9>"$copy/lock"
flock -n 9 || { echo "another run uses $copy"; exit 2; }
failed=0

# prepare PATCH: a fresh copy of the tree with the patch in it, which builds.
prepare() {
  rm -rf "$copy/tree" && mkdir "$copy/tree" || return 1
  (cd "$root" && git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' f; do [ -f "$f" ] && printf '%s\0' "$f"; done |
    xargs -0 cp -p --parents -t "$copy/tree") || return 1
  (cd "$copy/tree" && git apply "$1" && go build ./...) >"$copy/out" 2>&1
}

for file in "$here"/*.patch; do
  [ -e "$file" ] || { echo "no patches in $here"; exit 2; }
  name=$(basename "$file" .patch)
  kind=${name##*.}
  name=${name%.*}
  if [ $# -gt 0 ]; then
    case " $* " in *" $name "*) ;; *) continue ;; esac
  fi
  promise=$(sed -n 's/^Promise: //p;/^---/q' "$file")
  run=$(sed -n 's/^Run: //p;/^---/q' "$file")
  check=$(sed -n 's/^Soak: //p;/^---/q' "$file")
  if [ -n "$soak" ]; then
    [ -n "$check" ] && [ "$kind" = mutant ] || continue
    run=$soak
  fi
  if ! prepare "$file"; then
    echo "FAIL  $kind $name: does not apply or build"
    sed 's/^/      /' "$copy/out" | head -n 5
    failed=1
    continue
  fi
  found=0
  for ((i = 1; i <= tries; i++)); do
    (cd "$copy/tree" && eval "$run") >"$copy/out" 2>&1 || { found=$i; break; }
    [ "$kind" = control ] && break
  done
  if [ -n "$soak" ] && [ "$found" != 0 ] && ! grep -q "$check of session" "$copy/out"; then
    echo "FAIL  mutant $name ($promise): the soak test fails, and $check does not say why:"
    grep -vE 'covers |^ +[0-9]+ ' "$copy/out" | head -n 12 | cut -c1-200
    failed=1
    continue
  fi
  if [ -n "$soak" ]; then
    why=$(grep -m1 -oE "broke [^ ]+: $check of session.*" "$copy/out" | cut -c1-150)
  else
    why=$(grep -vE ': covers |_SEED=|report_test.go' "$copy/out" | grep -m1 -oE 'broke [^:]+:.*|[a-z_]+_test\.go:[0-9]+: .*|panic: .*' | cut -c1-150)
  fi
  case $kind:$found in
    control:0) echo "ok    control $name: passes" ;;
    control:*) echo "FAIL  control $name: fails without the mistake: $why"; failed=1 ;;
    mutant:0) echo "FAIL  mutant $name ($promise): not found in $tries tries"; failed=1 ;;
    mutant:*) echo "ok    mutant $name ($promise), try $found: $why" ;;
  esac
done
exit $failed
