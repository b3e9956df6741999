# Shared by the scripts of this folder; sourced, not run.
set -euo pipefail

KEYNEST_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
KEYNEST_DOWNLOAD_DIR=${KEYNEST_DOWNLOAD_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/keynest}
export KEYNEST_DOWNLOAD_DIR
script_name=$(basename "$0")

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
  bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
  bold='' red='' green='' plain=''
fi

say() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }
warn() { printf '%s: %s\n' "$script_name" "$*" >&2; }
fail() {
  printf '%s%s: %s%s\n' "$red" "$script_name" "$*" "$plain" >&2
  exit 1
}
usage_error() {
  printf '%s: %s (see --help)\n' "$script_name" "$*" >&2
  exit 2
}

# The comment at the top of the calling script is its help text.
print_help() { sed -n '2,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$0"; }

jobs() { nproc 2>/dev/null || echo 2; }

# Fetches packages by name with pip into a folder: fetch_packages FOLDER REQUIREMENT...
fetch_packages() {
  local folder=$1
  shift
  command -v python3 >/dev/null || fail "python3 is needed to fetch packages; run scripts/setup"
  python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip, which is needed to fetch packages; run scripts/setup"
  local log
  if ! log=$(python3 -m pip download --disable-pip-version-check --quiet --no-deps --only-binary :all: \
    --dest "$folder" "$@" 2>&1); then
    printf '%s\n' "$log" >&2
    fail "pip could not fetch $*; is there a network connection?"
  fi
}

sha256_of() { sha256sum "$1" | cut -d' ' -f1; }

# Configures and builds one preset.
build_preset() {
  say "Configuring and building preset $1"
  cmake --preset "$1" -S "$KEYNEST_ROOT"
  cmake --build "$(preset_folder "$1")" --parallel "$(jobs)"
}

preset_folder() { if [[ $1 == release ]]; then echo "$KEYNEST_ROOT/build"; else echo "$KEYNEST_ROOT/build-$1"; fi; }
