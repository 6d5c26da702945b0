#!/usr/bin/env bash
# The real small checkpoint through the emulated device: a chat prompt prefilled, 16 tokens decoded, the ids
# those of the CPU backend. Arguments: llmgen, llmgen_emulated. Exit code 77 where the checkpoint is missing.
set -euo pipefail
model=${LLMGEN_SMOLLM2:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgen/models/smollm2-135m-instruct}
[ -f "$model/model.safetensors" ] || { echo "no checkpoint at $model: tools/fetch_model smollm2"; exit 77; }

answer() {  # program, device
    "$1" --device "$2" --model "$model" --compute bf16 --greedy --ignore-eos --max-new-tokens 16 --max-context 128 \
        --prompt "What is the capital of France?" --json
}
field() { grep -oE "\"$2\":(\"[^\"]*\"|\[[0-9,]*\])" <<< "$1" | tail -1; }

cpu=$(answer "$1" cpu)
start=$SECONDS
emulated=$(answer "$2" cuda)
echo "emulated: $(field "$emulated" text) $(field "$emulated" token_ids), $((SECONDS - start)) s"
echo "CPU:      $(field "$cpu" text) $(field "$cpu" token_ids)"
[ "$(field "$emulated" device)" != "$(field "$cpu" device)" ] || { echo "both ran on the same device"; exit 1; }
[[ $(field "$emulated" text) == *Paris* ]] || { echo "not the answer"; exit 1; }
[ "$(field "$emulated" token_ids)" = "$(field "$cpu" token_ids)" ] || { echo "different ids"; exit 1; }
