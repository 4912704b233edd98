"""A model that is only planned has sizes and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from abaca.nn.build import make_model, planned
from models import untrained


@pytest.mark.parametrize("encoder", ["gru4rec", "sasrec", "hstu"])
def test_a_planned_model_has_the_sizes_of_a_real_one_and_no_memory(encoder: str) -> None:
    with planned():
        plan = make_model(encoder, "softmax+CPR:5+Mi", 50)
    real = make_model(encoder, "softmax+CPR:5+Mi", 50)
    assert all(tensor.is_meta for tensor in plan.state_dict().values())
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in plan.state_dict().items()} == {
        name: (tensor.shape, tensor.dtype) for name, tensor in real.state_dict().items()
    }


def test_loading_a_model_does_not_import_the_compiler_of_torch(tmp_path: Path) -> None:
    untrained(tmp_path)
    program = (
        f"import sys, abaca; abaca.load({str(tmp_path)!r}).recommend(['i1']); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
