# SPDX-License-Identifier: MIT
"""Layers of experts by Triton kernels of others, as functions without arguments that return their result: vLLM's and SGLang's
fused_moe_kernel and fused_moe_kernel_gptq_awq from an unchanged source file, and the triton_kernels package of openai from an
unchanged checkout. Needs PyTorch and Triton. What vLLM does in CUDA between the kernel's two launches (quantisation, silu and sum) are kernels of this file."""
import ast
import json
import os
import sys

import torch
import triton
import triton.language as tl

SCALE_GROUP = 128


@triton.jit
def quantise_rows(x, codes, scales, columns, GROUP: tl.constexpr):
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = group * GROUP + tl.arange(0, GROUP)
    values = tl.load(x + row * columns + at).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values)), 1e-10) / 448.0
    tl.store(codes + row * columns + at, (values / scale).to(tl.float8e4nv))
    tl.store(scales + row * (columns // GROUP) + group, scale)


@triton.jit
def silu_of_gates(gates, h, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    gate = tl.load(gates + row * 2 * columns + at, mask=inside).to(tl.float32)
    up = tl.load(gates + row * 2 * columns + columns + at, mask=inside).to(tl.float32)
    tl.store(h + row * columns + at, (gate / (1 + tl.exp(-gate)) * up).to(tl.bfloat16), mask=inside)


@triton.jit
def silu_of_gates_quantised(gates, codes, scales, columns, GROUP: tl.constexpr):
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = group * GROUP + tl.arange(0, GROUP)
    gate = tl.load(gates + row * 2 * columns + at).to(tl.float32)
    up = tl.load(gates + row * 2 * columns + columns + at).to(tl.float32)
    values = gate / (1 + tl.exp(-gate)) * up
    scale = tl.maximum(tl.max(tl.abs(values)), 1e-10) / 448.0
    tl.store(codes + row * columns + at, (values / scale).to(tl.float8e4nv))
    tl.store(scales + row * (columns // GROUP) + group, scale)


@triton.jit
def sum_of_slots(results, out, columns, stride, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for slot in tl.static_range(SLOTS):
        total += tl.load(results + (row * SLOTS + slot) * stride + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + at, total.to(tl.bfloat16), mask=inside)


def jit_functions(path):
    """The functions under @triton.jit of a source file by name. Nothing else of the file runs, so none of what it imports is
    needed."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and
                 any(ast.unparse(decorator).startswith("triton.jit") for decorator in node.decorator_list)]
    names = {"__name__": "functions_under_jit", "triton": triton, "tl": tl, "torch": torch}
    exec(compile(tree, path, "exec"), names)  # with the file's own line numbers, by which Triton finds the source
    return {node.name: names[node.name] for node in tree.body}


def config_of(folder, c, tokens):
    """vLLM's tuned config for the nearest number of tokens, from its file for this card in `folder`, or what it falls back to."""
    name = f"E={c.experts},N={c.intermediate},device_name={torch.cuda.get_device_name(0).replace(' ', '_')}"
    name += {"blocks": ",dtype=fp8_w8a8,block_shape=[128,128]", "int4": ",dtype=int4_w4a16"}.get(c.weights, "")
    path = os.path.join(folder, name + ".json") if folder else ""
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as file:
            tuned = {int(key): value for key, value in json.load(file).items() if key.isdigit()}
        return dict(tuned[min(tuned, key=lambda key: abs(key - tokens))])
    if c.weights == "blocks":
        return {"BLOCK_SIZE_M": 16 if tokens <= c.experts else 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 32,
                "num_warps": 4, "num_stages": 3}
    if c.weights == "int4":
        return {"BLOCK_SIZE_M": 16 if tokens <= 20 else 32 if tokens <= 40 else 64, "BLOCK_SIZE_N": 32 if tokens == 1 else 64,
                "BLOCK_SIZE_K": 64 if tokens == 1 else 32, "GROUP_SIZE_M": 1}
    few = tokens <= c.experts
    return {"BLOCK_SIZE_M": 16 if few else 64, "BLOCK_SIZE_N": 32 if few else 64, "BLOCK_SIZE_K": 64 if few else 32,
            "GROUP_SIZE_M": 1 if few else 8, "num_warps": 4, "num_stages": 3}


def pairs_of_rows(values):
    """Values of four bits [.., rows, columns] as [.., rows / 2, columns], the first row in the low half."""
    return None if values is None else (values[..., 0::2, :] | values[..., 1::2, :] << 4).contiguous()


def fused_moe(layer, kernels, configs):
    """Both products with quantisation, activation and sum by one of the source's kernels. Choices are sorted before, so neither
    gating nor sort is timed."""
    c, w = layer.config, layer.weights
    if w.kind == "mxfp4":
        return "fused_moe_kernel has no MXFP4"
    blocks, int4, slots = w.kind == "blocks", w.kind == "int4", c.topk
    name = "fused_moe_kernel_gptq_awq" if int4 else "fused_moe_kernel"
    if name not in kernels:
        return f"the source has no {name}"
    kernel, zeros = kernels[name], [pairs_of_rows(of_one) for of_one in w.zeros]
    config = config_of(configs, c, c.rows)
    tall, rows = config["BLOCK_SIZE_M"], c.rows * c.topk
    order, places, padded, total = layer.padded_groups(tall)
    sorted_ids = torch.full((total,), rows, dtype=torch.int32, device="cuda")
    sorted_ids[places] = order.int()
    expert_ids = torch.repeat_interleave(torch.arange(c.experts, device="cuda"), padded // tall).int()
    post_padded = torch.tensor([total], dtype=torch.int32, device="cuda")
    routed = layer.routed.float().contiguous()

    def empty(*shape, codes=False):
        return torch.empty(shape, device="cuda", dtype=torch.float8_e4m3fn if codes else torch.bfloat16)

    gates, results, out = empty(rows, 2 * c.intermediate), empty(c.rows, slots, c.columns), empty(c.rows, c.columns)
    h, x = empty(rows, c.intermediate, codes=blocks), empty(c.rows, c.columns, codes=True) if blocks else layer.x
    x_scale = torch.empty(c.rows, c.columns // SCALE_GROUP, device="cuda") if blocks else None
    h_scale = torch.empty(rows, c.intermediate // SCALE_GROUP, device="cuda") if blocks else None

    def product(a, a_scale, which, result, top_k, weigh):
        b, b_scale = w.values[which], w.scales[which]
        _, n, k = b.shape
        k *= 2 if int4 else 1
        whole_steps = k % config["BLOCK_SIZE_K"] == 0
        of_b_scale = (b_scale.stride(0), b_scale.stride(2), b_scale.stride(1)) if blocks or int4 else (0,) * 3
        strides = ((a_scale.stride(0), 1) if blocks else (0, 0)) + of_b_scale
        of_zeros = (0,) * 3 if zeros[which] is None else (zeros[which].stride(0), zeros[which].stride(2), zeros[which].stride(1))
        known = {"a_ptr": a, "b_ptr": b, "c_ptr": result, "bias_ptr": None, "b_bias_ptr": None, "a_scale_ptr": a_scale, "b_scale_ptr": b_scale,
                 "topk_weights_ptr": routed, "sorted_token_ids_ptr": sorted_ids, "expert_ids_ptr": expert_ids,
                 "num_tokens_post_padded_ptr": post_padded, "N": n, "K": k, "EM": total, "num_valid_tokens": rows,
                 "stride_am": a.stride(0), "stride_ak": 1, "stride_be": b.stride(0), "stride_bk": 1, "stride_bn": b.stride(1),
                 "stride_bias_e": 0, "stride_bias_n": 0, "stride_bbe": 0, "stride_bbn": 0, "stride_cm": result.stride(-2), "stride_cn": 1,
                 "group_n": 128 if blocks else 0, "group_k": 128 if blocks else 0, "MUL_ROUTED_WEIGHT": weigh, "top_k": top_k,
                 "compute_type": tl.bfloat16, "use_fp8_w8a8": blocks, "use_int8_w8a8": False, "use_int8_w8a16": False,
                 "use_int4_w4a16": int4, "has_zp": zeros[which] is not None, "b_zp_ptr": zeros[which], "group_size": c.scale_k,
                 "block_k_diviable": whole_steps, "per_channel_quant": False, "even_Ks": whole_steps, "HAS_BIAS": False, "SPLIT_K": 1,
                 "naive_block_assignment": False, **dict(zip("stride_asm stride_ask stride_bse stride_bsk stride_bsn".split(), strides)),
                 **dict(zip("stride_bze stride_bzk stride_bzn".split(), of_zeros)),
                 **{name: value for name, value in config.items() if name.isupper()}}
        unknown = [name for name in kernel.arg_names if name not in known]
        if unknown:
            raise RuntimeError(f"fused_moe_kernel asks for {unknown[0]}, which this script does not know")
        tuned = {name: value for name, value in config.items() if name.startswith("num_")}
        kernel[(triton.cdiv(total, tall) * triton.cdiv(n, config["BLOCK_SIZE_N"]),)](
            **{name: known[name] for name in kernel.arg_names}, **tuned)

    def run():
        if blocks:
            quantise_rows[(c.rows, c.columns // SCALE_GROUP)](layer.x, x, x_scale, c.columns, SCALE_GROUP)
        product(x, x_scale, 0, gates, slots, False)
        if blocks:
            silu_of_gates_quantised[(rows, c.intermediate // SCALE_GROUP)](gates, h, h_scale, c.intermediate, SCALE_GROUP)
        else:
            silu_of_gates[(rows, triton.cdiv(c.intermediate, 1024))](gates, h, c.intermediate, 1024)
        product(h, h_scale, 1, results, 1, True)
        sum_of_slots[(c.rows, triton.cdiv(c.columns, 1024))](results, out, c.columns, c.columns, slots, 1024)
        return out

    return run


class TritonKernels:
    """openai's triton_kernels of 2025-08, whose modules routing and matmul_ogs a layer of gpt-oss consists of. `folder` has the
    package."""

    def __init__(self, folder):
        sys.path.insert(0, folder)
        if not hasattr(tl, "constexpr_function"):  # Triton 3.6 has it elsewhere
            tl.constexpr_function = triton.constexpr_function
        import triton_kernels.matmul_ogs as products
        import triton_kernels.routing as routing
        from triton_kernels import numerics, swiglu, tensor
        from triton_kernels.tensor_details import layout
        self.products, self.routing, self.numerics = products, routing.routing, numerics
        self.swiglu, self.tensor, self.layout = swiglu, tensor, layout
        self.made = (None, None)  # weights, and both products' operands of them

    def operands(self, weights):
        """(values, precision, bias) of both products, in the layouts that the package takes best on this chip."""
        if self.made[0] is not weights:
            made, t = [], self.tensor
            values_layout, values_options = self.layout.make_default_matmul_mxfp4_w_layout(mx_axis=1)
            scales_layout, scales_options = self.layout.make_default_matmul_mxfp4_w_scale_layout(mx_axis=1, num_warps=8)
            for codes, scales, bias in zip(weights.values, weights.scales, weights.biases):
                values = t.convert_layout(t.wrap_torch_tensor(codes.transpose(-2, -1), dtype=t.FP4), values_layout, **values_options)
                scales = t.convert_layout(t.wrap_torch_tensor(scales.transpose(-2, -1)), scales_layout, **scales_options)
                precision = self.products.PrecisionConfig(
                    weight_scale=scales, flex_ctx=self.products.FlexCtx(rhs_data=self.numerics.InFlexData()))
                made.append((values, precision, bias.float()))
                torch.cuda.empty_cache()
            self.made = (weights, made)
        return self.made[1]

    def layer(self, layer, alpha, limit):
        """Choice and sort, both products and the sum."""
        if layer.weights.kind != "mxfp4":
            return "triton_kernels is asked for MXFP4 alone"
        (w1, precision1, bias1), (w2, precision2, bias2) = self.operands(layer.weights)
        p = self.products
        activation = p.FusedActivation(p.FnSpecs("swiglu", self.swiglu.swiglu_fn, ("alpha", "limit")), (alpha, limit), 2)

        def run():
            routing, gather, scatter = self.routing(layer.logits, layer.config.topk, sm_first=False)
            h = p.matmul_ogs(layer.x, w1, bias1, routing, gather_indx=gather, precision_config=precision1, fused_activation=activation)
            return p.matmul_ogs(h, w2, bias2, routing, scatter_indx=scatter, precision_config=precision2, gammas=routing.gate_scal)

        return run

    def routed(self, layer, function):
        """A function behind the package's choice and sort, whose time a layer of others takes at least."""
        def run():
            self.routing(layer.logits, layer.config.topk, sm_first=False)
            return function()

        return run
