"""Operations with a fast form: the only package with kernels.

Each module begins with a formula. Then follow the plain form, which autograd differentiates, the fast form, and the
choice between them. `form` fixes the choice in a `with` block:

    with ops.form("plain"):
        loss = model.loss(windows, targets)
"""

from abaca.nn.ops.library import Form, form, instructions

__all__ = ["Form", "form", "instructions"]
