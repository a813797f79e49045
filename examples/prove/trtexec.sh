#!/bin/sh
# Runs a folder of probes with trtexec, for `halfwise prove --backend "cmd:sh trtexec.sh"`.
# On another machine: rsync -a "$1/" HOST:probes/; ssh HOST sh trtexec.sh probes; rsync -a HOST:probes/ "$1/"
cd "$1" || exit 1
for model in models/*.onnx; do
  outputs=outputs/$(basename "$model" .onnx)
  if trtexec --onnx="$model" --stronglyTyped --skipInference --saveEngine=engine > log 2>&1; then
    version=$(sed -n 's/.*TensorRT version: \([0-9.]*\).*/\1/p' log | head -n 1)
    if [ -n "$version" ]; then echo "{\"library\": \"TensorRT\", \"version\": \"$version\"}" > about.json; fi
    for sample in inputs/$(basename "$model" .onnx)/*.load; do
      trtexec --loadEngine=engine --loadInputs="$(cat "$sample")" --iterations=1 --warmUp=0 --duration=0 \
        --exportOutput="$outputs/$(basename "$sample" .load).json" > log 2>&1 || tail -n 1 log > "$outputs/error.txt"
    done
  else
    grep -m 1 '\[E\]' log > "$outputs/error.txt" || tail -n 1 log > "$outputs/error.txt"
  fi
done
