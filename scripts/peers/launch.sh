# Starts a peer that scripts/get-peers has installed; sourced by the programs of this folder, not run.
set -euo pipefail

peers_source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export KEYNEST_PEERS_DIR=${KEYNEST_PEERS_DIR:-$(cd "$peers_source/../.." && pwd)/build/peers}

# Runs FILE with the arguments, if it is there: launch PACKAGE FILE ARGUMENT...
launch() {
  local package=$1 program=$2
  shift 2
  if [[ ! -x $program || ! -f $KEYNEST_PEERS_DIR/$package/installed ]]; then
    printf '%s: not installed in %s; run scripts/get-peers %s\n' "$(basename "$0")" "$KEYNEST_PEERS_DIR" "$package" >&2
    exit 3
  fi
  exec "$program" "$@"
}

# Runs a program of this folder with the Python of a package: launch_python PACKAGE SCRIPT ARGUMENT...
launch_python() {
  local package=$1 script=$2
  shift 2
  launch "$package" "$KEYNEST_PEERS_DIR/$package/bin/python" "$peers_source/$script" "$@"
}
