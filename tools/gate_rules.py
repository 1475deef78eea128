# SPDX-License-Identifier: MIT
"""The rules of `tools/isa gate`: what a fast kernel must not do. docs/isa.md explains each."""

from kernel_stats import ARCHS, load_bytes


def shapes(mfma):
    return " ".join(f"{n}x {name}" for name, n in sorted(mfma.items())) or "none"


def widths(loads):
    return " ".join(f"{n}x{width}B" for width, n in sorted(loads.items(), reverse=True)) or "0"


def violations(c):
    """(rule, what is wrong) of one kernel whose entry states the claims."""
    meta, claim, facts = c.kernel.metadata, c.entry, ARCHS[c.arch]
    scratch = meta[".private_segment_fixed_size"]
    if scratch or c.whole.count["scratch"] or meta.get(".uses_dynamic_stack"):
        yield "scratch", f"{scratch} bytes of scratch a lane, {c.whole.count['scratch']} scratch instructions"
    if meta[".vgpr_spill_count"] or meta[".sgpr_spill_count"]:
        yield "spill", f"{meta['.vgpr_spill_count']} VGPRs and {meta['.sgpr_spill_count']} SGPRs spilled"
    if c.whole.count["call"]:
        yield "call", f"{c.whole.count['call']} calls of functions that were not inlined"
    if c.arch != claim["arch"]:
        yield "arch", f"compiled for {c.arch}, the entry is for {claim['arch']}"
    if c.lds > facts.lds_bytes:
        yield "lds", f"{c.lds} bytes of LDS, a block may use {facts.lds_bytes}"
    if c.lds > claim["lds_bytes"]:  # less is what the compiler found unused
        yield "lds", f"{c.lds} bytes of LDS, the entry's Shared has {claim['lds_bytes']}"
    if meta[".max_flat_workgroup_size"] != 64 * claim["waves_per_block"]:
        lanes = meta[".max_flat_workgroup_size"]
        yield "block", f"compiled for {lanes} lanes, the policy has {claim['waves_per_block']} waves"
    if c.waves_per_simd() < claim["waves_per_simd"]:
        yield "waves", (
            f"{c.waves_per_simd()} waves per SIMD ({c.kernel.allocated_registers} registers, {c.lds} bytes of LDS), "
            f"the policy claims {claim['waves_per_simd']}"
        )
    if claim.get("row"):
        yield from row_violations(c, claim["row"])
    if claim.get("gemm"):
        yield from gemm_violations(c, claim["gemm"])
    if not claim["mfma"]:
        return
    if set(c.whole.mfma) != set(claim["mfma"]):
        yield "mfma", f"matrix instructions {shapes(c.whole.mfma)}, the room's atom is {', '.join(claim['mfma'])}"
    if claim.get("steady"):
        yield from steady_violations(c, claim["steady"])
    if c.kv_share() < 0.95:
        yield "kv_width", (
            f"{100 * c.kv_share():.1f} % of the KV bytes come {' or '.join(map(str, claim['kv_widths']))} a lane: "
            f"{shapes(c.matrix_loops.mfma)} in the loop, {claim['mfma_per_load']} for each 16 bytes, "
            f"beside loads {widths(c.matrix_loops.loads)}"
        )


def gemm_violations(c, claim):
    """Of a GEMM: products at the full rate, with nothing in the steady loop that a better loop would not have."""
    hot = c.hot
    if set(c.whole.mfma) != {claim["mfma"]}:
        yield "gemm_mfma", f"matrix instructions {shapes(c.whole.mfma)}, the full-rate one is {claim['mfma']}"
        return
    if not hot.vmcnt or 0 in hot.vmcnt:
        yield "gemm_drain", f"waits of the loop leave {sorted(set(hot.vmcnt)) or 'nothing'} loads under way"
    valu = hot.count["valu"] + hot.count["acc_move"] + hot.count["lane_move"]
    if valu > (claim["valu_of_products"] + 0.1) * hot.mfma.total():
        yield "gemm_valu", f"{valu} vector instructions beside {hot.mfma.total()} products"
    if hot.count["lds_write"] and not claim["writes_lds"]:
        yield "gemm_lds", f"{hot.count['lds_write']} writes to LDS, which copies could do"


def steady_violations(c, claim):
    """Of a loop that streams KV: what most of its iterations spend for each KB, and how much is never waited for."""
    steady = c.steady
    if not steady.kb:
        yield "steady", "no way round the loop loads K or V"
        return
    for rule, what, found in (
        ("steady_valu", "vector operations", steady.per_kb(steady.mix.count["valu"])),
        ("steady_matrix", "clocks of the matrix unit", steady.per_kb(steady.matrix_clocks)),
    ):
        if found > claim[rule]:
            yield rule, f"{found:.1f} {what} for each KB of K and V, {claim[rule]} were reached"
    if steady.kb_in_flight < claim["steady_flight"]:
        flight = claim["steady_flight"]
        yield "steady_flight", f"a wait leaves {steady.kb_in_flight:g} KB of a wave in flight, {flight} were reached"


def row_violations(c, claim):
    """Of a row operation: rows move in wide accesses, all in flight at once, and reductions stay in registers."""
    whole = c.whole
    if claim["vector"]:
        for what, found in (("load", whole.loads), ("store", whole.stores)):
            wide, other = claim[f"wide_{what}s"], claim[f"narrow_{what}_bytes"]
            if found[16] < wide:
                yield "row_width", f"{found[16]} {what}s of 16 bytes, the rows need {wide}"
            if sum(width * n for width, n in found.items() if width != 16) > other:
                yield "row_width", f"{what}s {widths(found)}: {other} bytes are not for accesses of 16"
    early = bytes_before_wait(c.kernel.instructions)
    if early < claim["bytes_in_flight"]:
        yield "row_flight", f"a lane waits with {early} bytes of its rows on their way, of {claim['bytes_in_flight']}"
    if whole.count["exchange"] > claim.get("exchanges", 0) or (whole.count["lds"] and not claim["barriers"]):
        n = whole.count
        yield "row_lanes", f"{n['exchange']} lane exchanges and {n['lds']} LDS accesses for {claim['barriers']} barriers"
    if whole.count["dpp"] < claim["dpp"]:
        yield "row_lanes", f"{whole.count['dpp']} DPP operations, the reductions take {claim['dpp']} steps"
    if whole.count["barrier"] > claim["barriers"]:
        yield "row_barriers", f"{whole.count['barrier']} barriers for {claim['barriers']} reductions of a block"


def bytes_before_wait(instructions):
    """Bytes of rows that a lane asks for, from the first load on, up to a wait for vector memory. Loads of rows are the
    non-temporal ones."""
    total = 0
    for ins in instructions:
        if ins.operands.split()[-1:] == ["nt"] and (width := load_bytes(ins.mnemonic)):
            total += width
        elif total and ins.mnemonic == "s_waitcnt" and "vmcnt" in ins.operands:
            break
    return total
