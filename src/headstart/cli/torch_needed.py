"""What verbs that train need beyond the package itself."""

from __future__ import annotations

from headstart.errors import UnsupportedError

_NEEDED = ("torch", "safetensors")


def require_torch(what: str) -> None:
    """Refuse to begin without PyTorch.

    Args:
        what: begins the sentence, such as "Heads are trained".

    Raises:
        UnsupportedError: it is not installed, or too old.
    """
    try:
        import safetensors
        import torch
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        raise UnsupportedError(
            f"{what} in PyTorch, and {error.name} is not installed. Install what training needs: "
            "pip install 'headstart[train]'. To draft with heads that are trained, nothing is needed."
        ) from None
    if not hasattr(torch.optim, "Muon"):
        raise UnsupportedError(
            f"{what} in PyTorch 2.9 or later, and {torch.__version__} is installed. Install what training needs: "
            "pip install 'headstart[train]'."
        )
    del safetensors
