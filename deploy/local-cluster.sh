#!/usr/bin/env bash
# The whole split system on one machine: 3 NATS servers, 2 brokers, 2 workers, 2 gateways,
# each a process of its own. Needs Go and its module proxy, from a clean clone on.
#
#   deploy/local-cluster.sh [--data-dir DIR] [--token T | --token-file F] [--listen URL]
#                           [--listen-b URL] [--nats-port N] [--config F] [flags of serve]
#
#   --data-dir DIR    where everything is kept (default ~/.local/share/rejoin-cluster): a folder
#                     and NAME.pid per process, log/NAME.log, token, nats/ as `rejoin nats-config` writes it
#   --token, --token-file   that both gateways ask for (default: one made once, in DIR/token)
#   --listen URL      of gateway-a (default tcp://127.0.0.1:9800), repeatable
#   --listen-b URL    of gateway-b (default tcp://127.0.0.1:9810; a free port where --listen was given)
#   --nats-port N     the servers listen on N, N+1, N+2, and 2000 above (default: free ones, kept)
#   --config F        configuration file of every role
#   of `rejoin serve` it takes, and hands
#     to every role   --log-format, --log-level
#     to the brokers  --allow-argv, --env-allow
#     to the workers  --capacity, --cgroups, --label, --max-event-bytes
#     to the gateways --auth-timeout, --insecure, --max-request-bytes, --no-auth, --tls-cert,
#                     --tls-client-ca, --tls-key, --tokens, --write-timeout
#   REJOIN_BIN and NATS_SERVER_BIN name binaries instead of building.
#
# It says where the gateways are once every role is ready; where one is not within two minutes it says
# which, and ends. A process that ends later is told, the others go on. SIGTERM or SIGINT ends all of
# them in order.
set -euo pipefail
set -m # each process in a group of its own: Ctrl-C is for this script alone

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=${XDG_DATA_HOME:-$HOME/.local/share}/rejoin-cluster
listen_a=() listen_b='' nats_port='' all=() auth=() brokers=() workers=() gateways=()
while [ $# -gt 0 ]; do
  flag=$1 words=2
  case $flag in
    --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --*=*) shift; set -- "${flag%%=*}" "${flag#*=}" "$@"; continue ;;
    --allow-argv | --no-auth | --insecure) words=1 ;;
  esac
  given=("${@:1:words}")
  case $flag in
    --data-dir) dir=${2-} ;;
    --listen) listen_a+=("${given[@]}") ;;
    --listen-b) listen_b=${2-} ;;
    --nats-port) nats_port=${2-} ;;
    --token | --token-file | --no-auth) auth+=("${given[@]}") ;;
    --config | --log-format | --log-level) all+=("${given[@]}") ;;
    --allow-argv | --env-allow) brokers+=("${given[@]}") ;;
    --capacity | --cgroups | --label | --max-event-bytes) workers+=("${given[@]}") ;;
    --auth-timeout | --insecure | --max-request-bytes | --tls-cert | --tls-client-ca | --tls-key | --tokens | --write-timeout)
      gateways+=("${given[@]}")
      ;;
    *) echo "$0: $flag is none of this script's flags: see --help" >&2; exit 2 ;;
  esac
  [ $# -ge $words ] || { echo "$0: $flag needs a value" >&2; exit 2; }
  shift $words
done
if [[ $nats_port && ! $nats_port =~ ^[0-9]{1,5}$ ]]; then
  echo "$0: --nats-port needs a number, not $nats_port" >&2
  exit 2
fi
if [ ${#listen_a[@]} -eq 0 ]; then
  listen_a=(--listen tcp://127.0.0.1:9800)
  listen_b=${listen_b:-tcp://127.0.0.1:9810}
fi
listen_b=${listen_b:-tcp://127.0.0.1:0}
mkdir -p -m 0700 "$dir" "$dir/log"
dir=$(cd "$dir" && pwd)

rejoin=${REJOIN_BIN:-$root/dist/rejoin}
nats_server=${NATS_SERVER_BIN:-$root/dist/nats-server}
[ -n "${REJOIN_BIN:-}" ] || (cd "$root" && go build -o "$rejoin" ./cmd/rejoin)
[ -n "${NATS_SERVER_BIN:-}" ] || (cd "$root" && go build -o "$nats_server" github.com/nats-io/nats-server/v2)

# A port is free when nobody listens there. Those that were chosen once stay: a server's name holds its port.
taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
if [ -s "$dir/nats-port" ]; then
  if [ -n "$nats_port" ] && [ "$nats_port" != "$(cat "$dir/nats-port")" ]; then
    echo "$0: the servers in $dir have port $(cat "$dir/nats-port"): --nats-port cannot change it" >&2
    exit 2
  fi
else
  while [ -z "$nats_port" ]; do
    nats_port=$((20000 + RANDOM % 8000))
    for p in 0 1 2; do
      if taken $((nats_port + p)) || taken $((nats_port + p + 2000)); then
        nats_port=''
        break
      fi
    done
  done
  echo "$nats_port" >"$dir/nats-port"
fi
nats_port=$(cat "$dir/nats-port")
if [ ${#auth[@]} -eq 0 ]; then
  if [ ! -s "$dir/token" ]; then
    (umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$dir/token")
  fi
  auth=(--token-file "$dir/token")
fi

servers='' urls=''
for p in 0 1 2; do
  servers+=",127.0.0.1:$((nats_port + p))"
  urls+=",tls://127.0.0.1:$((nats_port + p))"
done
"$rejoin" nats-config --dir "$dir/nats" --name local --servers "${servers#,}" --store-dir "$dir/nats/store" >/dev/null

declare -A pids=() # of what runs, by name
launch() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >>"$dir/log/$name.log" 2>&1 </dev/null &
  pids[$name]=$!
  echo "$!" >"$dir/$name.pid"
}

role() { # NAME ROLE FLAGS...
  local name=$1 role=$2
  shift 2
  rm -f "$dir/$name.ready"
  launch "$name" "$rejoin" serve --roles "$role" --data-dir "$dir/$name" --ready-file "$dir/$name.ready" \
    --nats "${urls#,}" --nats-ca "$dir/nats/ca.pem" --nats-creds "$dir/nats/$role.nk" --nats-system-creds "$dir/nats/system.nk" \
    ${all[@]+"${all[@]}"} "$@"
}

# await waits until processes are ready, or ends everything when one ends before or is not within two minutes.
await() { # NAME...
  local name other
  for name in "$@"; do
    until [ -s "$dir/$name.ready" ]; do
      for other in "${!pids[@]}"; do
        kill -0 "${pids[$other]}" 2>/dev/null || give_up "$other" "did not start"
      done
      [ $SECONDS -lt "$limit" ] || give_up "$name" "is not ready after two minutes"
      sleep 0.05 &
      wait $! || true
    done
  done
}

give_up() { # NAME WHY
  echo "$1 $2:" >&2
  tail -n 5 "$dir/log/$1.log" >&2
  finish
  exit 1
}

# end sends a signal to processes, by the beginning of their names, and waits for them.
end() { # SIGNAL PREFIX...
  local signal=$1 name prefix
  shift
  for prefix in "$@"; do
    for name in "${!pids[@]}"; do
      [[ $name != "$prefix"* ]] || kill -"$signal" "${pids[$name]}" 2>/dev/null || true
    done
  done
  for prefix in "$@"; do
    for name in "${!pids[@]}"; do
      if [[ $name == "$prefix"* ]]; then
        wait "${pids[$name]}" 2>/dev/null || true
        unset "pids[$name]"
        rm -f "$dir/$name.pid" "$dir/$name.ready"
      fi
    done
  done
}

stopping=''
finish() { # children end first, and clients still see it; the journal goes last
  trap '' TERM INT
  stopping=1
  end TERM worker
  end TERM gateway
  end TERM broker
  end TERM nats
}
trap 'finish; exit 0' TERM INT

limit=$((SECONDS + 120))
for p in 0 1 2; do
  launch "nats-$p" "$nats_server" -c "$dir/nats/127-0-0-1-$((nats_port + p))/nats.conf"
done
role broker-a broker ${brokers[@]+"${brokers[@]}"}
role broker-b broker ${brokers[@]+"${brokers[@]}"}
role worker-a worker --worker-id worker-a ${workers[@]+"${workers[@]}"}
role worker-b worker --worker-id worker-b ${workers[@]+"${workers[@]}"}
await broker-a broker-b worker-a worker-b
# Last: the first request of the first client finds a worker.
role gateway-a gateway "${listen_a[@]}" "${auth[@]}" ${gateways[@]+"${gateways[@]}"}
role gateway-b gateway --listen "$listen_b" "${auth[@]}" ${gateways[@]+"${gateways[@]}"}
await gateway-a gateway-b

where() { sed 's/.*"listeners":\[{"url":"\([^"]*\)".*/\1/' "$dir/$1.ready"; }
echo "rejoin is ready: 3 NATS servers, 2 brokers, 2 workers, 2 gateways"
echo "  gateway-a on  $(where gateway-a)"
echo "  gateway-b on  $(where gateway-b)"
echo "  data in       $dir"
[ "${auth[0]}" != --token-file ] || echo "  token in      ${auth[1]}"
echo "  to begin      rejoin --server $(where gateway-a),$(where gateway-b) start"

while [ ${#pids[@]} -gt 0 ]; do
  wait -n "${pids[@]}" 2>/dev/null || true
  for name in "${!pids[@]}"; do
    if ! kill -0 "${pids[$name]}" 2>/dev/null; then
      wait "${pids[$name]}" 2>/dev/null && status=0 || status=$?
      [ -n "$stopping" ] || echo "$name ended with status $status" >&2
      unset "pids[$name]"
      rm -f "$dir/$name.pid"
    fi
  done
done
echo "nothing runs any more" >&2
exit 1
