"""A call of middle size for every operator that takes float32, by family, beside torch.

python benchmarks/surface.py [WORDS]    # only calls that contain one of the words
"""

import sys

import numpy
import rabbet
from common import THREADS, finish, side_by_side, torch_or_none

rng = numpy.random.default_rng(0)


def normal(*shape: int) -> numpy.ndarray:
    return rng.normal(size=shape).astype("float32")


def regular(*shape: int) -> numpy.ndarray:
    """Square matrices whose diagonal dominates."""
    return normal(*shape) + 2 * shape[-1] * numpy.eye(shape[-1], dtype="float32")


def definite(*shape: int) -> numpy.ndarray:
    a = normal(*shape)
    return a @ a.swapaxes(-1, -2) + shape[-1] * numpy.eye(shape[-1], dtype="float32")


N = 512  # of matrices; vectors have N * N elements
BATCHES = {f"b{n}": regular(2048 if n < 32 else 512, n, n) for n in (4, 8, 16, 32)}
INPUTS = {
    "x": normal(N, N),
    "y": normal(N, N),
    "u": rng.uniform(0.05, 0.95, (N, N)).astype("float32"),  # in the domain of every function
    "w": rng.uniform(1.1, 4.0, (N, N)).astype("float32"),
    "k": rng.integers(-20, 20, (N, N)).astype("float32"),
    "z": (normal(N, N) + 1j * normal(N, N)).astype("complex64"),
    "v": normal(N * N),
    "s": normal(N),
    "m": rng.uniform(size=(N, N)) < 0.5,
    "n": rng.uniform(size=(N, N)) < 0.5,
    "i": rng.integers(0, N, (N, N)),
    "j": rng.integers(0, N, N),
    "p": rng.permutation(N),
    "e": numpy.sort(normal(N)),
    "h": rng.integers(0, 100, (N, N)).astype("int32"),
    "g": rng.integers(0, 8, (N, N)).astype("int32"),
    "A": regular(N, N),
    "P": definite(N, N),
    "Q": regular(256, 256),
    "S": definite(256, 256),
    "T": normal(8, 64, 64),
    "U": normal(8, 64, 64),
    "image": normal(8, 16, 64, 64),
    "line": normal(8, 32, 1024),
    "cube": normal(2, 8, 16, 32, 32),
    "kernel": normal(32, 16, 3, 3),
    "kernel1": normal(32, 32, 5),
    "kernel3": normal(8, 8, 3, 3, 3),
    "gain": normal(16),
    "grid": rng.uniform(-1, 1, (8, 64, 64, 2)).astype("float32"),
    "table": normal(1000, 64),
    "classes": rng.integers(0, N, N),
    "signs": rng.choice([-1.0, 1.0], (N, N)).astype("float32"),
    "log_p": numpy.log(rng.dirichlet(numpy.ones(64), N)).astype("float32"),
    "prob": rng.dirichlet(numpy.ones(64), N).astype("float32"),
    "wave": normal(8, 16384),
    **BATCHES,
    **{f"d{n}": definite(*b.shape) for n, b in zip((4, 8, 16, 32), BATCHES.values(), strict=True)},
    **{
        f"r{n}": normal(*b.shape[:2], 1)
        for n, b in zip((4, 8, 16, 32), BATCHES.values(), strict=True)
    },
}


def of(arguments: str, names: str, module: str = "t") -> list[str]:
    """Calls of the named functions with the same arguments."""
    return [f"{module}.{name}({arguments})" for name in names.split()]


FAMILIES = {
    "Functions of one number": [
        *of("u", """abs acos asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1
            floor frac i0 lgamma log log10 log1p log2 logit neg rad2deg reciprocal relu round rsqrt sgn sigmoid sign
            signbit sin sinc sinh sqrt square tan tanh trunc positive isfinite isinf isnan isneginf isposinf
            nan_to_num logical_not angle conj_physical isreal"""),
        "t.acosh(w)",
        *of("u", "entr i0e i1 i1e log_ndtr ndtr ndtri erfcx", "t.special"),
        *of("w", """bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 modified_bessel_k0
            modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai""",
            "t.special"),
        *of("x", """celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu
            softplus softshrink softsign tanhshrink""", "f"),
        "f.threshold(x, 0.1, 20.0)", "f.prelu(x, s[:1])", "f.gelu(x, approximate='tanh')",
        "t.polygamma(1, w)", "t.polygamma(3, w)", "t.mvlgamma(w + 2, 3)", "t.clamp(x, -1, 1)", "t.clamp_min(x, 0.0)",
        "t.clamp_max(x, 0.0)", "t.frexp(x)", "t.real(z)", "t.imag(z)", "t.abs(z)", "t.angle(z)", "t.exp(z)", "t.sqrt(z)",
        "x.to(t.float64)", "x.half()", "x.bfloat16()", "x.int()", "x.bool()", "x.clone()", "t.zeros_like(x)", "t.full_like(x, 2)",
    ],
    "Functions of two numbers and more": [
        *of("x, y", """add sub mul div maximum minimum fmax fmin hypot copysign atan2 fmod remainder floor_divide
            logaddexp logaddexp2 nextafter heaviside eq ne lt le gt ge logical_and logical_or logical_xor isclose ldexp
            complex polar true_divide"""),
        "t.pow(u, y)", "t.pow(x, 2)", "t.pow(u, 0.5)", "t.float_power(u, y)", "t.xlogy(x, u)", "t.special.xlog1py(x, u)",
        "t.special.zeta(w, w)", "t.igamma(u, w)", "t.igammac(u, w)", "t.lerp(x, y, 0.3)", "t.lerp(x, y, u)",
        "t.addcmul(x, y, u)", "t.addcdiv(x, y, u)", "t.where(m, x, y)", "x.masked_fill(m, 0.0)", "x * 2.0", "1.0 - x",
        *of("h, g", "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm"),
        "t.bitwise_not(h)",
        *of("u, 5", """chebyshev_polynomial_t chebyshev_polynomial_u hermite_polynomial_h hermite_polynomial_he
            laguerre_polynomial_l legendre_polynomial_p""", "t.special"),
        "x + s", "x + s[:, None]", "x.t() + y", "z * z", "z + z",
    ],
    "Reductions, scans and order": [
        *of("x", """sum mean prod std var amax amin argmax argmin max min nansum nanmean aminmax count_nonzero
            median nanmedian std_mean var_mean norm"""),
        *of("x, 1", """sum mean prod std var amax amin argmax argmin max min nansum nanmean logsumexp cumsum cumprod cummax
            cummin logcumsumexp median nanmedian mode sort argsort softmax log_softmax norm count_nonzero std_mean"""),
        *of("x, 0", "sum mean var amax argmax max cumsum cumprod cummax logcumsumexp sort median softmax logsumexp"),
        "t.any(m)", "t.all(m, 1)", "t.norm(x, 1, dim=1)", "t.norm(x, float('inf'), dim=1)", "t.linalg.vector_norm(x, 3, 1)",
        "t.kthvalue(x, 100, 1)", "t.topk(x, 10, 1)", "t.quantile(x, 0.3, 1)", "t.nanquantile(x, 0.3, 1)", "t.msort(x)",
        "t.dist(x, y)", "t.trace(x)", "t.diff(x)", "t.renorm(x, 2, 0, 1.0)", "t.histc(x, 100)", "t.cov(x)", "t.corrcoef(x)",
        "t.trapezoid(x)", "t.cumulative_trapezoid(x)", "t.sort(v)", "t.unique(g)", "t.unique_consecutive(g)",
        "t.unique(x)", "t.bincount(i.flatten())", "t.searchsorted(e, x)", "t.bucketize(x, e)", "t.isin(g, g[0])",
        "t.sum(m)", "t.sum(x, dtype=t.float64)", "t.allclose(x, x)", "t.equal(x, x)", "t.histogram(x, 100)",
    ],
    "Indexing and movement": [
        "t.masked_select(x, m)", "x[m]", "t.nonzero(m)", "t.argwhere(m)", "t.index_select(x, 0, j)", "t.index_select(x, 1, j)",
        "x[j]", "x[:, j]", "x[j, p]", "t.gather(x, 1, i)", "t.gather(x, 0, i)", "t.take(x, i)", "t.take_along_dim(x, i, 1)",
        "t.scatter(x, 1, i, y)", "t.scatter_add(x, 1, i, y)", "t.scatter_reduce(x, 1, i, y, 'amax')", "t.index_add(x, 0, j, y)",
        "t.index_copy(x, 0, p, y)", "t.index_fill(x, 0, j, 1.0)", "t.index_put(x, (j, p), s)", "t.index_put(x, (j,), y, True)",
        "t.index_put(x, (m,), t.ones(()))", "t.index_reduce(x, 0, j, y, 'prod')", "t.masked_scatter(x, m, y)", "x.put(i, y)",
        "t.cat([x, y])", "t.cat([x, y], 1)", "t.stack([x, y])", "t.stack([x, y], 2)", "x.repeat(2, 2)", "t.tile(x, (2, 2))",
        "t.repeat_interleave(x, 2, 1)", "t.flip(x, [1])", "t.flip(x, [0])", "t.roll(x, 3, 1)", "t.rot90(x)", "t.tril(x)", "t.triu(x)",
        "x.t().contiguous()", "T.permute(2, 0, 1).contiguous()", "t.diag(x)", "t.diag_embed(x[:64])", "t.diagonal_scatter(x, s)",
        "t.select_scatter(x, s, 0, 3)", "t.slice_scatter(x, y[:10], 0, 5, 15)", "t.hstack([x, y])", "t.dstack([x, y])",
        "t.block_diag(x, y)", "t.meshgrid(s, s, indexing='ij')", "t.cartesian_prod(s, s)", "t.combinations(s[:200])",
        "t.vander(s, 100)", "t.tril_indices(300, 300)", "t.eye(512)", "t.arange(262144.0)", "t.linspace(0, 1, 262144)",
        "t.logspace(0, 1, 262144)", "t.zeros(512, 512)", "t.full((512, 512), 3.0)", "t.bernoulli(u)", "t.rand(512, 512)",
        "t.randn(512, 512)", "t.randint(0, 9, (512, 512))", "t.randperm(100000)", "t.multinomial(u, 10, True)", "t.poisson(w)",
        "t.empty(512, 512).exponential_()", "f.dropout(x, 0.5)", "f.one_hot(classes, 512)", "f.pad(image, (1, 1, 1, 1))",
        "f.pad(image, (1, 1, 1, 1), mode='reflect')", "f.embedding(i[:64], table[:512])", "f.embedding_bag(i[:64], table[:512])",
        "f.fold(f.unfold(image, 3), (64, 64), 3)", "f.unfold(image, 3)", "f.pixel_shuffle(image, 4)", "f.channel_shuffle(image, 4)",
        "t.unfold_copy(v, 0, 16, 4)", "t.kron(x[:32, :32], y[:16, :16])", "t.gradient(x)",
    ],
    "Products and linear algebra": [
        "t.mm(x, y)", "t.matmul(x, s)", "t.bmm(T, U)", "t.dot(v, v)", "t.outer(s, s)", "t.addmm(x, y, u)", "t.addmv(s, x, s)",
        "t.baddbmm(T, T, U)", "t.addr(x, s, s)", "t.cross(x[:, :3], y[:, :3])", "t.cdist(x[:, :32], y[:, :32])",
        "t.einsum('bij,bjk->bik', T, U)", "t.tensordot(T, U, ([0, 1], [0, 1]))", "t.chain_matmul(x, y, u)", "t.linalg.multi_dot([x, y, u])",
        "t.matrix_exp(Q / 1000)", "t.matrix_power(Q / 600, 5)", "f.linear(x, y, s)", "f.bilinear(x[:, :32], y[:, :32], T[:4, :32, :32])",
        *of("A", "inv det slogdet lu_factor lu qr pinv matrix_rank cond", "t.linalg"),
        "t.linalg.solve(A, x)", "t.linalg.solve(A, s)", "t.linalg.cholesky(P)", "t.cholesky_solve(x, t.linalg.cholesky(P))",
        "t.cholesky_inverse(P)", "t.linalg.solve_triangular(A, x, upper=True)", "t.linalg.lstsq(Q, Q)", "t.linalg.svd(Q)",
        "t.linalg.svdvals(Q)", "t.linalg.eigh(S)", "t.linalg.eigvalsh(S)", "t.linalg.eig(Q)", "t.linalg.eigvals(Q)",
        "t.linalg.ldl_factor(S)", "t.linalg.householder_product(Q, s[:256])", "t.linalg.matrix_norm(Q, 2)", "t.linalg.matrix_norm(Q, 'nuc')",
        "t.linalg.matrix_norm(x)", "t.linalg.vander(s[:200])", "t.linalg.vecdot(x, y)", "t.logdet(P)", "t.linalg.tensorinv(Q.view(16, 16, 256))",
        *[f"t.linalg.{call}" for n in (4, 8, 16, 32)
          for call in (f"solve(b{n}, r{n})", f"cholesky(d{n})", f"svd(b{n})", f"eigh(d{n})", f"inv(b{n})", f"det(b{n})", f"qr(b{n})")],
    ],
    "Fourier transforms and windows": [
        *[f"t.fft.fft(v[:{n}])" for n in (2**10, 2**13, 2**16, 2**18, 1009, 10007, 100003)],
        *[f"t.fft.rfft(v[:{n}])" for n in (2**10, 2**16, 10007)],
        "t.fft.irfft(z[0])", "t.fft.fft2(x)", "t.fft.rfft2(x)", "t.fft.ifft2(z)", "t.fft.fftn(T)", "t.fft.rfft(wave)", "t.fft.fft(T)",
        "t.fft.fftshift(x)", "t.fft.hfft(z)", "t.stft(wave, 512, window=s, return_complex=True)", "t.hann_window(100000)",
        "t.kaiser_window(100000)", "t.hamming_window(100000)",
    ],
    "Layers and losses": [
        "f.conv1d(line, kernel1)", "f.conv2d(image, kernel, padding=1)", "f.conv3d(cube, kernel3)", "f.conv2d(image, kernel[:, :1], groups=16)",
        "f.conv_transpose2d(image, kernel.transpose(0, 1))", "f.max_pool1d(line, 2)", "f.max_pool2d(image, 2)", "f.max_pool3d(cube, 2)",
        "f.avg_pool1d(line, 2)", "f.avg_pool2d(image, 2)", "f.avg_pool3d(cube, 2)", "f.adaptive_avg_pool2d(image, 7)",
        "f.adaptive_max_pool2d(image, 7)", "f.lp_pool2d(image, 2, 2)", "f.max_unpool2d(*f.max_pool2d(image, 2, return_indices=True), 2)",
        "f.layer_norm(x, (512,))", "f.rms_norm(x, (512,))", "f.group_norm(image, 4)", "f.instance_norm(image)",
        "f.batch_norm(image, None, None, training=True)", "f.batch_norm(image, gain, gain.abs(), gain, gain)", "f.local_response_norm(image, 3)",
        "f.normalize(x)", "f.cosine_similarity(x, y)", "f.pairwise_distance(x, y)", "f.pdist(x[:200])", "f.softmin(x, 1)", "f.glu(x)",
        "f.scaled_dot_product_attention(T, U, T)", "f.interpolate(image, scale_factor=2)",
        "f.interpolate(image, scale_factor=2, mode='bilinear')", "f.interpolate(image, scale_factor=2, mode='bicubic')",
        "f.interpolate(line, scale_factor=2, mode='linear')", "f.interpolate(image, size=20, mode='bilinear', antialias=True)",
        "f.grid_sample(image, grid, align_corners=False)", "f.affine_grid(T[:, :2, :3], (8, 3, 64, 64), align_corners=False)",
        *of("x, y", "mse_loss l1_loss smooth_l1_loss huber_loss", "f"),
        "f.cross_entropy(x, classes)", "f.nll_loss(x, classes)", "f.binary_cross_entropy(u, u)", "f.binary_cross_entropy_with_logits(x, u)",
        "f.kl_div(log_p, prob)", "f.poisson_nll_loss(x, w)", "f.gaussian_nll_loss(x, y, u)", "f.hinge_embedding_loss(x, signs)",
        "f.soft_margin_loss(x, signs)", "f.multi_margin_loss(x, classes)", "f.multilabel_soft_margin_loss(x, u)",
        "f.cosine_embedding_loss(x, y, signs[0])", "f.margin_ranking_loss(x, y, signs)", "f.triplet_margin_loss(x, y, u)",
    ],
}  # fmt: skip


def scopes(torch) -> dict[str, dict]:
    """For each library the names that the calls use: its modules and the inputs."""
    modules = {"rabbet": rabbet} | ({"torch": torch} if torch else {})
    return {
        name: {key: t.from_numpy(array.copy()) for key, array in INPUTS.items()}
        | {"t": t, "f": t.nn.functional}
        for name, t in modules.items()
    }


def main() -> None:
    words = sys.argv[1:]
    names = scopes(torch_or_none())
    rabbet.set_num_threads(THREADS)
    for number, (family, expressions) in enumerate(FAMILIES.items()):
        rows = []
        for call in expressions:
            if words and not any(word in call for word in words):
                continue
            calls = {name: eval(f"lambda: {call}", scope) for name, scope in names.items()}
            seconds = side_by_side(calls, repeats=3, slice_seconds=0.01)
            rows.append({"what": call, **seconds})
        if rows:
            finish(f"surface{number}", f"Surface: {family.lower()} (float32)", rows)


if __name__ == "__main__":
    main()
