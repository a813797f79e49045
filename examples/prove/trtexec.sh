#!/bin/sh
# Runs a folder of probes with trtexec, for `halfwise prove --backend cmd:./trtexec.sh`.
# On another machine: rsync -a "$1/" HOST:probes/; ssh HOST sh trtexec.sh probes; rsync -a HOST:probes/ "$1/"
cd "$1" || exit 1
for model in models/*.onnx; do
  name=$(basename "$model" .onnx)
  if trtexec --onnx="$model" --stronglyTyped --skipInference --saveEngine=engine > log 2>&1; then
    for sample in inputs/"$name"/*.load; do
      trtexec --loadEngine=engine --loadInputs="$(cat "$sample")" --iterations=1 --warmUp=0 --duration=0 \
        --exportOutput=outputs/"$name"/"$(basename "$sample" .load)".json >> log 2>&1 || cp log outputs/"$name"/error.txt
    done
  else
    grep -m 1 '\[E\]' log > outputs/"$name"/error.txt || cp log outputs/"$name"/error.txt
  fi
done
sed -n 's/.*TensorRT version: \([0-9.]*\).*/{"library": "TensorRT", "version": "\1"}/p' log | head -n 1 > about.json
