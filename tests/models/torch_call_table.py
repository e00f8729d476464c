"""Calls of torch whose ATen overload is checked: expressions over the names of `environment()`.

`t` is torch, `nn`, `linalg`, `fft`, `special` the modules of torch._C; any other root is the tensor whose method is called.
"""

from __future__ import annotations

import torch


def environment() -> dict[str, object]:
    """Fresh operands."""
    g = torch.Generator().manual_seed(0)

    def rand(*size: int) -> torch.Tensor:
        return torch.rand(*size, generator=g) + 0.1

    i = torch.randint(1, 5, (2, 3, 4), generator=g)
    return {
        "torch": torch, "x": rand(2, 3, 4), "y": rand(2, 3, 4), "d": rand(2, 3, 4).double(), "v": rand(4), "u": rand(4),
        "m": rand(4, 5), "n": rand(5, 4), "sq": rand(4, 4) + 4 * torch.eye(4), "bm": rand(2, 4, 5), "s": torch.tensor(2.0), "i": i,
        "j": torch.randint(1, 5, (2, 3, 4), generator=g), "b": i > 2, "c": i > 3, "k": torch.tensor([0, 2, 1]),
        "k0": torch.tensor([0, 1]), "img": rand(1, 3, 8, 8), "w": rand(6, 3, 3, 3), "seq": rand(1, 3, 16), "w1": rand(6, 3, 3),
        "bias6": rand(6), "g3": rand(3), "g3b": rand(3), "e": rand(10, 4), "ids": torch.tensor([[1, 2], [3, 9]]),
        "q": rand(1, 2, 5, 8), "kk": rand(1, 2, 5, 8), "tgt": torch.tensor([1, 3, 0, 2]), "z": torch.complex(rand(3), rand(3)),
        "t3": rand(3, 4), "p": torch.nn.Parameter(rand(4, 5)), "one": rand(1, 3, 1), "i8": torch.tensor([1, -2, 3], dtype=torch.int8),
    }  # fmt: skip


POINTWISE = """
t.add(x, y) | t.add(x, y, alpha=2) | t.add(x, 2) | t.add(x, 2.5, alpha=3) | t.add(input=x, other=y) | x.add(y) | x.add(1)
x.add(other=y) | x.add(True)
x.add(s) | t.sub(x, y) | t.sub(x, 1.5) | x.sub(y, alpha=0.5) | t.subtract(x, 2) | t.mul(x, y) | t.mul(x, 3) | x.mul(0.5)
x.multiply(y) | t.div(x, y)
t.div(x, 2) | t.div(x, y, rounding_mode='floor') | t.div(x, 2.0, rounding_mode='trunc') | t.div(x, 2, rounding_mode=None)
x.divide(y) | t.true_divide(x, 3)
t.floor_divide(x, y) | t.floor_divide(i, 2) | x.remainder(y) | x.remainder(2.0) | t.remainder(7, x) | x.fmod(y) | x.fmod(2)
t.rsub(x, 3) | t.rsub(x, y)
t.pow(x, 2) | t.pow(x, y) | t.pow(2, x) | x.pow(0.5) | x.pow(s) | x.pow(exponent=3) | t.float_power(x, 2) | x.float_power(y)
t.maximum(x, y) | x.minimum(y)
x.abs() | t.abs(x) | x.neg() | t.negative(x) | x.exp() | t.exp(input=x) | x.log() | x.sqrt() | x.rsqrt() | x.sigmoid()
t.tanh(x) | x.relu() | t.relu(x)
x.erf() | x.floor() | x.ceil() | x.round() | x.round(decimals=1) | t.round(x, decimals=2) | x.trunc() | x.reciprocal()
x.square() | x.sign() | x.sin() | t.cos(x)
x.clamp(0.2, 0.8) | x.clamp(min=0.3) | x.clamp(max=0.3) | t.clamp(x, None, 0.5) | x.clamp(y) | x.clamp(min=y, max=d)
x.clamp_min(0.5) | x.clamp_max(y)
t.where(b, x, y) | t.where(b, x, 0.0) | t.where(b, 1.0, x) | t.where(b, 1, 2) | x.where(b, y) | x.where(b, 0.5)
x.masked_fill(b, 0.0) | x.masked_fill(b, s)
t.eq(x, y) | x.eq(1) | x.ne(y) | x.lt(0.5) | x.le(y) | x.gt(0) | x.ge(y) | t.isnan(x) | x.isinf() | t.isfinite(x)
t.logical_and(b, c) | b.logical_or(c) | b.logical_not()
i.bitwise_and(j) | i.bitwise_and(3) | i.bitwise_or(j) | t.bitwise_xor(i, 1) | i.bitwise_not() | i.bitwise_left_shift(1)
t.bitwise_right_shift(i, j) | t.bitwise_and(3, i)
i.__and__(j) | i.__and__(1) | i.__or__(j) | i.__xor__(2) | i.__lshift__(1) | i.__rshift__(j) | x.__add__(y) | x.__mul__(2)
x.__truediv__(y) | x.__sub__(1) | x.__mod__(2)
x.__radd__(1) | x.__rmul__(2.0) | x.__floordiv__(y) | i.__rand__(3) | x.__eq__(y) | x.__lt__(1) | t.lerp(x, y, 0.3)
x.lerp(y, d.float()) | t.addcmul(x, y, y, value=2)
x.addcdiv(y, y, value=0.5) | t.addcmul(x, y, y) | x.atan2(y) | t.hypot(x, y) | x.xlogy(y) | t.xlogy(x, 2.0) | x.copysign(y)
x.copysign(-1.0) | x.nan_to_num() | x.nan_to_num(nan=1.0)
t.logaddexp(x, y) | x.heaviside(y) | t.sigmoid(x) | x.logit(0.1) | x.expm1() | x.log1p() | x.log2() | x.digamma() | x.frac()
x.positive() | t.gcd(i, j) | t.isclose(x, y)
t.isclose(x, y, rtol=0.1, equal_nan=True) | t.allclose(x, y) | t.equal(x, y) | x.logical_xor(y) | t.threshold(x, 0.5, 0.0)
t.celu(x) | t.prelu(x, g3) | x.hardshrink(0.2)
t.real(z) | t.conj(z) | z.angle() | t.view_as_real(z) | t.sgn(x) | x.ldexp(i) | t.nextafter(x, y) | x.signbit()
t.fmax(x, y) | t.fmin(x, y) | x.sinc() | t.clip(x, 0.1, 0.9)
x.clip(0.3) | t.exp2(x) | x.special_entr() | t.isposinf(x) | t.isin(i, k) | t.isin(i, 2) | t.isin(2, k) | t.isreal(x)
x.type_as(d) | t.is_nonzero(s) | t.dropout(x, 0.0, False)
"""

REDUCTIONS = """
t.sum(x) | x.sum() | x.sum(1) | x.sum(dim=1) | x.sum((0, 2)) | x.sum([1]) | x.sum(-1, True) | x.sum(axis=0, keepdims=True)
t.sum(x, dim=(0,), keepdim=True)
x.sum(dtype=torch.float64) | t.sum(x, 1, dtype=torch.float64) | x.mean() | x.mean(-1) | x.mean(dim=(1, 2), keepdim=True)
t.mean(x, dim=0) | x.mean(-1, keepdim=True, dtype=torch.float64)
x.prod() | x.prod(1) | t.prod(x, dim=1, keepdim=True) | x.max() | x.max(1) | t.max(x, y) | t.max(x, dim=-1, keepdim=True)
x.max(y) | x.min() | t.min(x, 0) | x.amax(1)
x.amax((0, 1)) | x.amin(dim=-1, keepdim=True) | t.aminmax(x) | t.aminmax(x, dim=1) | x.argmax() | x.argmax(-1)
t.argmax(x, dim=1, keepdim=True) | x.argmin(0) | x.std() | x.std(1)
t.std(x, dim=1, correction=0) | t.std(x, 1, False) | t.std(x, unbiased=False) | x.var() | x.var(-1, unbiased=False)
t.var(x, dim=(0, 1), correction=1, keepdim=True) | t.var_mean(x, -1)
t.std_mean(x) | t.norm_except_dim(m, 2, 0) | t.norm(x, 2) | x.median() | x.median(1) | t.mode(x, 1) | t.logsumexp(x, 1)
x.logsumexp((0, 1)) | x.all() | b.all(1) | b.any() | b.any(dim=(0, 1))
t.all(b, dim=0, keepdim=True) | x.cumsum(1) | t.cumsum(x, dim=0, dtype=torch.float64) | x.cumprod(0) | t.cummax(x, 1)
t.cummin(x, 0) | x.logcumsumexp(1) | x.count_nonzero() | t.count_nonzero(x, dim=1)
x.nansum() | x.nanmean(1) | x.softmax(-1) | t.softmax(x, 1, torch.float64) | x.log_softmax(dim=1)
t.log_softmax(x, -1, dtype=torch.float64) | x.sort() | x.sort(0, True) | t.sort(x, dim=1, descending=True)
t.sort(x, stable=True, dim=1) | x.argsort() | x.argsort(1, descending=True) | t.argsort(x, dim=1, stable=True) | x.topk(2)
t.topk(x, k=2, dim=0, largest=False) | x.kthvalue(2) | x.quantile(0.5) | t.quantile(x, 0.25, dim=1)
x.trace() | sq.trace() | t.bincount(k) | t.histc(x, 4) | x.dist(y) | t.dist(x, y, 1) | x.nanmedian() | t.diff(x)
t.diff(x, n=1, dim=0) | x.msort()
"""

VIEWS = """
x.view(6, 4) | x.view((2, 12)) | x.view([24]) | x.view(-1) | x.view(2, -1) | x.view(torch.int32) | x.view(size=(6, 4))
x.reshape(4, 6) | x.reshape((-1,)) | t.reshape(x, (3, 8)) | t.reshape(x, shape=(8, 3))
x.permute(2, 0, 1) | x.permute((1, 0, 2)) | t.permute(x, (0, 2, 1)) | x.permute(dims=(0, 2, 1)) | x.transpose(0, 1)
t.transpose(x, 1, 2) | x.transpose(-1, -2) | x.swapaxes(0, 1) | m.t() | t.t(m) | x.unsqueeze(0) | t.unsqueeze(x, -1)
one.squeeze() | one.squeeze(0) | t.squeeze(one, dim=0) | one.squeeze((0, 2)) | x.flatten() | x.flatten(1)
t.flatten(x, start_dim=0, end_dim=1) | x.unflatten(2, (2, 2)) | x.expand(5, 2, 3, 4) | one.expand(-1, -1, 4)
one.expand((2, 3, 4)) | one.expand_as(x) | x.narrow(1, 0, 2) | t.narrow(x, 1, 0, 2) | x.select(0, 1) | t.select(x, 1, -1)
x.unfold(2, 2, 1) | x.diagonal() | t.diagonal(x, 0, 1, 2) | x.movedim(0, 2) | t.movedim(x, (0, 1), (2, 0))
x.split(2, 1) | x.split_with_sizes((1, 2), 1) | t.split_with_sizes(x, [1, 2], dim=1) | t.split(x, 2) | t.split(x, [1, 1])
x.chunk(2) | t.chunk(x, 3, 1) | x.unbind() | x.unbind(1) | t.unbind(x, dim=2) | x.tensor_split(2) | x.tensor_split((1,), 1)
x.as_strided((2, 2), (1, 2)) | x.as_strided((2, 2), (1, 2), 1) | x.view_as(y) | x.reshape_as(y) | x.detach() | x.contiguous()
x.clone() | x.clone(memory_format=torch.contiguous_format) | t.clone(x) | x.alias() | x.broadcast_to(5, 2, 3, 4)
x.broadcast_to((2, 2, 3, 4))
t.atleast_2d(v) | x.ravel() | t.ravel(x) | x.t_() | m.adjoint() | x.hsplit(2) | t.vsplit(m, 2) | x.moveaxis(0, 1)
t.view_copy(x, (6, 4)) | t.unravel_index(k, (2, 3)) | x.repeat(2, 1, 1) | x.repeat((1, 2, 1)) | x.tile(2) | x.tile((2, 1))
x.flip(0) | x.flip((0, 1)) | x.flip(0, 1) | x.roll(1) | x.roll(1, 0) | x.roll((1, 2), (0, 1)) | t.rot90(x) | x.tril()
m.triu(1) | t.tril(m, diagonal=-1) | v.diag() | t.diag_embed(v) | v.diagflat() | x.repeat_interleave(2)
x.repeat_interleave(2, dim=1)
"""

INDEXING = """
t.cat((x, y)) | t.cat([x, y], 1) | t.cat(tensors=(x, y), dim=-1) | t.concat((x, y)) | t.stack((x, y))
t.stack([x, y], dim=1) | t.hstack((x, y)) | t.vstack((x, y)) | t.dstack([x, y]) | t.column_stack((v, u))
x.index_select(1, k) | t.index_select(x, 0, k0) | x.gather(1, i.clamp(max=2))
t.gather(x, 0, i.clamp(max=1), sparse_grad=False) | x.scatter(1, i.clamp(max=2), y) | x.scatter(1, i.clamp(max=2), 0.5)
x.scatter_add(1, i.clamp(max=2), y)
x.scatter(0, i.clamp(max=1), y, reduce='add') | x.scatter_reduce(1, i.clamp(max=2), y, 'sum') | x.index_add(1, k, y)
x.index_add(1, k, y, alpha=2) | x.index_copy(1, k, y) | x.index_fill(1, k, 0.0) | x.index_fill(1, k, s)
x.index_put((k0,), y)
x.masked_select(b) | t.masked_select(x, b) | x.masked_scatter(b, y) | x.take(k) | x.take_along_dim(i.clamp(max=2), 1)
t.take_along_dim(x, i) | t.where(b) | x.nonzero() | t.searchsorted(v, u) | t.searchsorted(v, 0.5) | t.bucketize(x, v)
t.bucketize(0.3, v)
t.meshgrid((v, u)) | t.broadcast_tensors((v, m.t())) | t.block_diag((m, n)) | t.cartesian_prod((v, u)) | t.combinations(v)
t.tril_indices(3, 3) | t.triu_indices(3, 4, 1) | t.embedding(e, ids) | t.embedding(e, ids, padding_idx=1)
x.unique_consecutive()
t._unique2(k, True, True) | x.select_scatter(v.expand(3, 4), 0, 1) | x.slice_scatter(y, 0) | t.constant_pad_nd(x, (1, 1))
t.constant_pad_nd(x, (1, 1), 2.0) | x.put(k, g3) | t.renorm(x, 2, 0, 1.0) | x.fill_diagonal_(0.0) | t.dstack((x, y))
"""

FACTORIES = """
t.zeros(2, 3) | t.zeros((2, 3)) | t.zeros([2]) | t.zeros(()) | t.zeros(2, 3, dtype=torch.float64)
t.zeros((2,), device='cpu') | t.zeros(2, device=torch.device('cpu'), dtype=torch.int32) | t.zeros(size=(2, 3)) | t.ones(3)
t.ones((2, 2), dtype=torch.bool)
t.full((2, 3), 1.5) | t.full((2,), 3) | t.full((2,), True) | t.full([2], 2, dtype=torch.float32) | t.arange(5)
t.arange(1, 5) | t.arange(0, 10, 2) | t.arange(5.0) | t.arange(end=4) | t.arange(0, 1, 0.25) | t.arange(3, dtype=torch.int32)
t.arange(3, device='cpu')
t.linspace(0, 1, 5) | t.linspace(0, 1, steps=3, dtype=torch.float64) | t.logspace(0, 1, 3) | t.eye(3) | t.eye(2, 3)
t.eye(3, dtype=torch.float64) | t.zeros_like(x) | t.zeros_like(x, dtype=torch.int32) | t.ones_like(x) | t.full_like(x, 2)
t.full_like(x, 1.5, dtype=torch.float64)
t.zeros_like(x, memory_format=torch.contiguous_format) | x.new_zeros(2, 3) | x.new_zeros((2, 3))
x.new_zeros((2,), dtype=torch.int64) | x.new_ones(3) | x.new_full((2,), 3.0) | x.new_full((2, 2), 1, dtype=torch.int32)
t.scalar_tensor(2.0) | t.scalar_tensor(1, dtype=torch.int64)
t.hann_window(4) | t.hann_window(4, False) | t.zeros(2, layout=torch.strided) | t.zeros(2, pin_memory=False)
t.zeros(2, requires_grad=False) | t.zeros(2, out=None) | t.polar(v, u) | t.complex(v, u) | t.vander(v) | t.heaviside(x, s)
x.new_zeros([2]) | t.ones(2, dtype=float)
t.empty_like(x).fill_(1) | x.new_ones((2,), device='cpu') | t.triu_indices(2, 2) | t.zeros(2, dtype=None)
t.result_type(x, d) | t.promote_types(torch.int8, torch.float32) | t.normal(0.0, 0.0, (2,)) | t.kaiser_window(5)
t.full((), 7)
"""

IN_PLACE = """
x.add_(y) | x.add_(1) | x.add_(y, alpha=2) | x.sub_(0.5) | x.mul_(y) | x.mul_(2) | x.div_(y) | x.div_(2.0)
x.div_(2, rounding_mode='floor') | x.pow_(2) | x.remainder_(2) | x.floor_divide_(2) | x.clamp_(0.1, 0.5) | x.clamp_(min=y)
x.relu_() | t.relu_(x)
x.exp_() | x.neg_() | x.zero_() | x.fill_(2) | x.fill_(s) | t.fill_(x, 1.5) | x.masked_fill_(b, 0.0) | x.masked_fill_(b, s)
x.copy_(y) | x.index_add_(1, k, y) | x.index_copy_(1, k, y) | x.index_fill_(1, k, 0.0) | x.index_put_((k0,), y)
x.scatter_(1, i.clamp(max=2), 0.5)
x.scatter_(1, i.clamp(max=2), y) | x.scatter_add_(1, i.clamp(max=2), y) | x.unsqueeze_(0) | one.squeeze_() | m.t_()
x.transpose_(0, 1) | x.__iadd__(y) | x.__imul__(2) | x.__isub__(1) | x.__idiv__(y) | i.__iand__(j) | i.__ior__(1)
x.lerp_(y, 0.5) | x.addcmul_(y, y) | x.sigmoid_() | x.tanh_()
x.sqrt_() | x.rsqrt_() | x.round_() | x.bernoulli_(1.0) | x.uniform_(0.0, 0.0) | x.normal_(0.0, 0.0) | x.cumsum_(0)
x.tril_() | x.swapaxes_(0, 1) | x.eq_(y) | x.logical_not_() | x.resize_(2, 3) | x.resize_((24,)) | i.bitwise_and_(1)
x.fill_(True) | t.dropout_(x, 0.0, False)
m.addmm_(sq, m) | m.addmm_(sq, m, beta=0.5, alpha=2) | v.addmv_(sq, u) | x.true_divide_(2) | x.abs_() | x.nan_to_num_()
x.erfinv_() | x.detach_() | sq.addmm_(m, n) | x.put_(k, g3) | x.squeeze_(0) | x.masked_scatter_(b, y) | x.random_(0, 1)
"""

LINEAR = """
t.mm(m, n) | m.mm(n) | t.matmul(x, m) | x.matmul(other=m) | x.__matmul__(m) | t.bmm(bm, bm.transpose(1, 2))
bm.bmm(mat2=bm.mT) | t.mv(sq, v) | t.dot(v, u) | v.dot(u) | t.outer(v, u) | t.ger(v, u) | t.inner(v, u) | t.addmm(sq, m, n)
t.addmm(sq, m, n, beta=0.5, alpha=2)
t.baddbmm(bm, bm, bm.transpose(1, 2) @ bm) | t.baddbmm(bm @ bm.mT, bm, bm.mT, beta=0) | t.addmv(v, sq, u) | t.addr(sq, v, u)
t.einsum('ij,jk->ik', (m, n)) | t.tensordot(m, n, dims_self=[1], dims_other=[0]) | t.kron(m, n)
t.cross(t3[:, :3], t3[:, 1:], dim=1) | t.chain_matmul((m, n))
t.cdist(m, m) | t._cdist_forward(m, m, 2.0, None) | t.cosine_similarity(x, y) | t.cosine_similarity(x, y, dim=-1, eps=1e-6)
t.pairwise_distance(m, m) | t.det(sq) | sq.det() | t.inverse(sq) | sq.inverse() | t.cholesky(sq @ sq.mT) | t.logdet(sq)
t.slogdet(sq) | t.matrix_power(sq, 2) | t.matrix_exp(sq)
linalg.linalg_norm(x) | linalg.linalg_vector_norm(x, 2) | linalg.linalg_vector_norm(x, 2, -1, True)
linalg.linalg_vector_norm(x, ord=1, dim=(0, 1), keepdim=True) | linalg.linalg_inv(sq) | linalg.linalg_solve(sq, m)
linalg.linalg_matrix_norm(m) | linalg.linalg_det(sq) | linalg.linalg_qr(m)
linalg.linalg_svd(m) | linalg.linalg_eigh(sq) | linalg.linalg_cross(t3[:, :3], t3[:, 1:])
linalg.linalg_multi_dot((m, n, m)) | linalg.linalg_matrix_rank(m) | fft.fft_fft(x) | fft.fft_rfft(x, n=4)
fft.fft_fftn(x, dim=(0, 1)) | fft.fft_fftfreq(4) | fft.fft_ifft(x, dim=1, norm='ortho')
special.special_erf(x) | special.special_expit(x) | special.special_xlogy(x, y) | special.special_logsumexp(x, 1)
special.special_softmax(x, 1) | special.special_entr(x) | special.special_zeta(x, 2.0) | special.special_polygamma(1, x)
x.polygamma(1) | special.special_i0(x)
"""

NEURAL = """
nn.linear(x, n) | nn.linear(x, m.t(), None) | nn.linear(x, m.t().contiguous(), bias=n[:, 0]) | nn.gelu(x)
nn.gelu(x, approximate='tanh') | nn.silu(x) | nn.softplus(x) | nn.softplus(x, 2, 10) | nn.elu(x) | nn.elu(x, 0.5)
nn.leaky_relu(x, 0.1) | nn.hardtanh(x) | nn.hardtanh(x, -0.5, 0.5)
nn.hardswish(x) | nn.hardsigmoid(x) | nn.mish(x) | nn.relu6(x) | nn.log_sigmoid(x) | nn.softshrink(x) | nn.glu(x)
nn.glu(x, 0) | t.layer_norm(x, (4,)) | t.layer_norm(x, (4,), v, u) | t.layer_norm(x, [4], v, u, 1e-6, False)
t.layer_norm(x, normalized_shape=(3, 4), eps=1e-3)
t.rms_norm(x, (4,)) | t.rms_norm(x, (4,), v) | t.rms_norm(x, (4,), v, 1e-6) | t.group_norm(img, 3, g3, g3b)
t.group_norm(img, 3) | t.batch_norm(img, g3, g3b, g3, g3, False, 0.1, 1e-5, False)
t.instance_norm(img, None, None, None, None, True, 0.1, 1e-5, False)
t.conv2d(img, w) | t.conv2d(img, w, bias6) | t.conv2d(img, w, bias6, 2, 1) | t.conv2d(img, w, None, (1, 2), (1, 0), 1, 1)
t.conv2d(img, w, padding='same') | t.conv2d(img, w, bias6, 1, 'valid') | t.conv1d(seq, w1)
t.conv1d(seq, w1, bias6, stride=2, padding=1) | t.conv_transpose2d(img, w.transpose(0, 1))
t.convolution(img, w, bias6, (1, 1), (0, 0), (1, 1), False, (0, 0), 1) | nn.avg_pool2d(img, 2)
nn.avg_pool2d(img, (2, 2), stride=1, padding=(1, 1)) | t.max_pool2d(img, 2) | t.max_pool2d(img, 3, 2, 1)
nn.adaptive_avg_pool2d(img, 2) | nn.adaptive_avg_pool2d(img, (2, 3)) | t.adaptive_avg_pool1d(seq, 4)
nn.max_pool2d_with_indices(img, 2) | nn.upsample_nearest2d(img, (16, 16)) | nn.upsample_nearest2d(img, None, (2.0, 2.0))
nn.upsample_bilinear2d(img, (4, 4), False) | nn.upsample_bilinear2d(img, [4, 4], True, 0.5, 0.5)
t.pixel_shuffle(img.repeat(1, 4, 1, 1), 2) | nn.im2col(img, (3, 3), (1, 1), (0, 0), (1, 1))
nn.pad(x, (1, 1)) | nn.pad(x, [1, 0], 'constant', 2.0) | nn.pad(img, (1, 1, 1, 1), mode='reflect') | nn.one_hot(ids)
nn.one_hot(ids, 12) | nn.cross_entropy_loss(sq, tgt) | nn.cross_entropy_loss(sq, tgt, v, 1, -100, 0.1) | nn.nll_loss(sq, tgt)
nn.nll_loss_nd(sq, tgt) | nn.mse_loss(x, y) | nn.mse_loss(x, y, 2)
nn.l1_loss(x, y) | nn.smooth_l1_loss(x, y) | nn.huber_loss(x, y, 1, 0.5) | nn.binary_cross_entropy(x.sigmoid(), b.float())
t.binary_cross_entropy_with_logits(x, b.float()) | t.kl_div(x, y) | nn.scaled_dot_product_attention(q, kk, kk)
nn.scaled_dot_product_attention(q, kk, kk, is_causal=True)
nn.scaled_dot_product_attention(q, kk, kk, None, 0.0, False, scale=0.5)
nn.scaled_dot_product_attention(q, kk, kk, attn_mask=q[..., :5], enable_gqa=False) | nn.unfold_backward(q, kk)
t.bilinear(x, y, w[:, 0, :, 0], None) | t.embedding_bag(e, k, k0)
t.grid_sampler(img, img[:, :2].permute(0, 2, 3, 1), 0, 0, False)
t.native_layer_norm(x, (4,), v, u, 1e-5) | t.native_group_norm(img, g3, g3b, 1, 3, 64, 3, 1e-5)
t.channel_shuffle(img.repeat(1, 2, 1, 1), 2) | t.affine_grid_generator(bm[:1, :2, :3], (1, 1, 4, 4), False)
t.ctc_loss(x, ids, [2, 2], [2, 2]) | t.lstm_cell(m, (m, m), w, w) | t.gru_cell(v, v, w, w)
t.rrelu(x, 0.1, 0.1) | t.alpha_dropout(x, 0.0, False) | t.feature_dropout(x, 0.0, False) | nn.reflection_pad1d(seq, (1, 1))
nn.replication_pad2d(img, (1, 1, 1, 1)) | nn.softshrink(x, 0.2) | nn.multi_margin_loss(sq, tgt) | nn.soft_margin_loss(x, y)
nn.flatten_dense_tensors((v, u)) | nn.gelu_(x) | nn.silu_(x)
"""

TABLE = [expression.strip() for block in (POINTWISE, REDUCTIONS, VIEWS, INDEXING, FACTORIES, IN_PLACE, LINEAR, NEURAL)
         for line in block.strip().splitlines() for expression in line.split(" | ")]  # fmt: skip
