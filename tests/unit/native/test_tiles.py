"""Products on tile registers, through their imitation: the same bits as without tiles."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.testing.passes import rows_of_one, wanted_logits
from headstart.testing.quantise import make_tensor
from headstart.testing.small_trunks import make_product_trunk


@pytest.mark.parametrize("num_inputs", [32, 64, 96, 160, 576])  # with and without a half tile at the end
@pytest.mark.parametrize("num_rows", [1, 3, 4, 15, 16, 17, 37])
def test_tiles_give_the_bits_of_plain_products(num_inputs: int, num_rows: int) -> None:
    random = np.random.default_rng(num_inputs)
    weights, inputs = random.normal(size=(50, num_inputs)), random.normal(size=(37, num_inputs)).astype(np.float32)
    logits = [
        wanted_logits(
            make_product_trunk(
                make_tensor("w", weights, "F32"), inputs, target="int8-row", instruction_set=name, threads=2
            ),
            rows_of_one(range(num_rows)),
        )
        for name in ("portable", "emulated-tiles")
    ]
    np.testing.assert_array_equal(logits[0], logits[1])
