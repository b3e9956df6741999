#!/usr/bin/env bash
# Runs one snippet or example in a scratch folder that looks like the top of the repository, so that paths such as
# models/... and build/keynest mean what they mean to a reader, and what it writes is thrown away.
#   run.sh SOURCE_FOLDER BUILD_FOLDER MODELS_FOLDER SNIPPET COMMAND...
# Exit 77 (skipped) when a model the snippet names has not been fetched.
set -euo pipefail
source_folder=$1 build_folder=$2 models_folder=$3 snippet=$4
shift 4

for model in $(grep -oE 'models/[A-Za-z0-9._-]+\.gguf' "$snippet" | cut -d/ -f2 | sort -u); do
  if [[ ! -e $models_folder/$model ]]; then
    echo "skipped: no $models_folder/$model (scripts/get-model fetches it)"
    exit 77
  fi
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for entry in "$source_folder"/*; do
  name=$(basename "$entry")
  case $name in build* | models) ;; *) ln -s "$entry" "$scratch/$name" ;; esac
done
ln -s "$build_folder" "$scratch/build"
ln -s "$models_folder" "$scratch/models"
cd "$scratch"
"$@"
