"""Whether the numbers of a tensor are finite, at the price of one pass where all are. Waits for the GPU it lies on."""

import math

import torch


def nonfinite_tensor(model: torch.nn.Module) -> str | None:
    """The name of the first weight with a non-finite value; weights kept outside memory are not looked at. Waits for the GPU."""
    for name, weight in model.named_parameters():
        if not weight.is_meta and count_nonfinite(weight.detach()):
            return name
    return None


def count_nonfinite(tensor: torch.Tensor) -> int:
    """How many of its elements are NaN or infinite. One pass where all are finite."""
    if tensor.is_complex():
        return int((~torch.isfinite(tensor)).sum())
    if not tensor.is_floating_point() or math.isfinite(float(tensor.sum(dtype=torch.float32))):
        return 0
    wide = tensor.float() if tensor.itemsize == 1 else tensor  # 8-bit numbers cannot be asked
    return int((~torch.isfinite(wide)).sum())  # the sum may also have run over by itself
