#!/usr/bin/env bash
# llama.cpp with its full cache, timed; bench/peers/llama_peer.cc says how.
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"
launch llama.cpp "$KEYNEST_PEERS_DIR/llama.cpp/bin/peer_llama" "$@"
