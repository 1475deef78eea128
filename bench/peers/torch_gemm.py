#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch's matrix products on the configs of bench_gemm, in the same way. PyTorch calls cuBLAS: for
16-bit types, and by torch._scaled_mm for fp8 with scales of the tensor, of rows, and of blocks, 1 x 128 by 128 x 128. It
prints CSV with bench_gemm's columns.

  torch_gemm.py build/sm90/bench/bench_gemm >peers.csv
  torch_gemm.py --graph --filter '/m16/' ours.csv"""
import csv
import sys

import common
import gemm_configs

TOOL = "torch_gemm"
PEERS = {"torch": "fp8 sums as the matrix units keep them", "exact": "fp8 sums promoted to f32"}
FP8_DEVIATION = 48.0  # of codes: bench/ops/gemm/tensors.hpp
ROW = {"fp8": 2e-2}  # of the l2 norm, as bench/ops/gemm/verify.hpp


class Gemm:
    """A call's inputs, nearly normal: A [batch, M, K] and B [batch, N, K], without batch if there is one."""

    def __init__(self, torch, config, arch):
        self.torch, self.config = torch, config
        c = config
        fp8 = torch.float8_e4m3fnuz if arch == "gfx942" else torch.float8_e4m3fn
        dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "fp8": fp8}
        self.out = dtypes[c.out]
        layers = (c.batch,) if c.batch > 1 else ()

        def operand(rows):
            values = torch.empty(*layers, rows, c.k, dtype=torch.bfloat16, device="cuda").normal_()
            return (values * FP8_DEVIATION).clamp(-240, 240).to(fp8) if c.a == "fp8" else values.to(dtypes[c.a])

        def scales(*shape):
            return (torch.rand(shape, device="cuda") + 0.5) / FP8_DEVIATION

        self.a, self.b = operand(c.m), operand(c.n)
        if c.scale == "block":  # Scales of A [M, K / 128] lie with M side by side, as ours do.
            self.a_scale, self.b_scale = scales(-(-c.k // 128), c.m).T, scales(-(-c.n // 128), -(-c.k // 128))
        else:
            self.a_scale, self.b_scale = (scales(*{"none": (0,), "tensor": (), "row": (rows, 1)}[c.scale])
                                          for rows in (c.m, c.n))

    def run_of(self, peer):
        """Returns a function that multiplies, or why this peer is left out."""
        torch, c = self.torch, self.config
        if c.a == "fp8":
            if c.scale == "block" and peer == "torch":
                return "sums of blocks are promoted"
            b, b_scale = self.b.T, self.b_scale.T if c.scale in ("row", "block") else self.b_scale
            return lambda: torch._scaled_mm(self.a, b, scale_a=self.a_scale, scale_b=b_scale, out_dtype=self.out,
                                            use_fast_accum=peer == "torch")
        if peer == "exact":
            return "16-bit products are exact"
        return lambda: torch.matmul(self.a, self.b.mT)

    def verify(self, out):
        """Returns (ok, max_abs_err, max_rel_err) of up to eight rows and some columns against f64."""
        torch, c = self.torch, self.config

        def some(extent, count):
            return torch.linspace(0, extent - 1, min(extent, count), device="cuda").long()

        def rows_of(operand, rows):  # PyTorch does not index fp8 tensors.
            bits = operand.view(torch.uint8) if c.a == "fp8" else operand
            return bits[..., rows, :].view(operand.dtype).double()

        rows, columns = some(c.m, 8), some(c.n, 256)
        if c.scale == "block":  # Each 128 k are summed and scaled by themselves.
            a, b = rows_of(self.a, rows), rows_of(self.b, columns)
            a_scale, b_scale = self.a_scale[rows].double(), self.b_scale[columns // 128].double()
            expected = sum(a[:, k:k + 128] @ b[:, k:k + 128].mT * a_scale[:, k // 128, None] * b_scale[:, k // 128]
                           for k in range(0, c.k, 128))
        else:
            expected = rows_of(self.a, rows) @ rows_of(self.b, columns).mT
        if c.scale == "row":
            expected *= self.a_scale[rows].double() * self.b_scale[columns].double().T
        if c.scale == "tensor":
            expected *= self.a_scale.double() * self.b_scale.double()
        difference = out[..., rows, :][..., columns].double() - expected
        difference = difference.abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
        relative = (difference.norm(dim=-1) / expected.norm(dim=-1)).max().item()
        return relative <= ROW.get(c.a, 2 ** -8), difference.max().item(), relative


def configs_of(options):
    """Returns the configs that are run on PyTorch, by key."""
    found, left_out = {}, {}
    for key, config in common.chosen(TOOL, options, gemm_configs.config_of).items():
        if config.left_out:
            left_out[config.left_out] = left_out.get(config.left_out, 0) + 1
        else:
            found[key] = config
    for reason, count in left_out.items():
        print(f"{TOOL}: {count} config{'s' * (count > 1)} left out: {reason}", file=sys.stderr)
    if not found:
        common.fail(TOOL, "no config is left to time")
    return found


def main(arguments):
    options = common.parse(TOOL, __doc__, arguments, PEERS, "torch")
    found = configs_of(options)
    torch = common.import_torch(TOOL)
    arch, sampler = common.arch_of(torch), common.Sampler(torch, options.max_seconds)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(gemm_configs.COLUMNS)
    failed = False

    def tell(key, peer, what):
        print(f"{TOOL}: {key}: {peer}: {what}", file=sys.stderr)

    with torch.no_grad():
        for key, config in found.items():
            gemm = Gemm(torch, config, arch)
            for peer in options.peers:
                run = gemm.run_of(peer)
                if isinstance(run, str):
                    tell(key, peer, f"left out: {run}")
                    continue
                try:
                    run = common.graph_of(torch, run) if options.graph else run
                    cold, hot = sampler.measure(run)
                    verdict = gemm.verify(run())
                except RuntimeError as error:
                    tell(key, peer, str(error).splitlines()[0])
                    failed = True
                    continue
                if not verdict[0]:
                    tell(key, peer, "wrong: max_abs_err {1:.3g}, max_rel_err {2:.3g}".format(*verdict))
                    failed = True
                name = peer + (".graph" if options.graph else "")
                entry = f"{peer}/torch {torch.__version__}"
                out.writerow(gemm_configs.row_of(key, config, arch, name, entry, cold, hot, verdict))
                sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
