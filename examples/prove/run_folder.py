"""Runs a folder of probes with ONNX Runtime, for `halfwise prove --backend "cmd:python run_folder.py [PROVIDER]"`."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

*named, last = sys.argv[1:]
provider, folder = [*named, "CUDAExecutionProvider"][0], Path(last)
for model in sorted(folder.glob("models/*.onnx")):
    outputs = folder / "outputs" / model.stem
    try:
        session = ort.InferenceSession(str(model), providers=[provider, "CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        for sample in sorted((folder / "inputs" / model.stem).glob("*.npz")):
            results = session.run(names, dict(np.load(sample)))
            np.savez(outputs / sample.name, **dict(zip(names, results, strict=True)))
    except Exception as error:
        (outputs / "error.txt").write_text(str(error))
(folder / "about.json").write_text(json.dumps({"library": "ONNX Runtime", "version": ort.__version__}))
