"""Where things lie: the project, the tests' data, and the real models beside the project."""

from pathlib import Path

__all__ = ["DATA", "REAL_MODELS", "ROOT"]

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
REAL_MODELS = ROOT.parent / "shared" / "models"
