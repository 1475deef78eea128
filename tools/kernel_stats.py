# SPDX-License-Identifier: MIT
"""What compiled AMD kernels are made of: instruction counts, loops, occupancy. docs/isa.md explains the numbers."""

import collections
import pathlib
import re
from dataclasses import dataclass

import code_object
from code_object import CodeObjectError


@dataclass(frozen=True)
class Arch:
    """Occupancy facts; the gate compares the first five with the library's own ArchFacts."""

    lds_bytes: int
    simds_per_cu: int = 4
    max_waves_per_simd: int = 8
    register_file_lanes: int = 512
    register_granule: int = 8
    lds_granule: int = 512  # LLVM: AMDGPU getLdsDwGranularity, 128 dwords, or 320 where the LDS has 160 KiB
    sgpr_file: int = 800  # per SIMD, in steps of 16


ARCHS = {"gfx942": Arch(lds_bytes=64 * 1024), "gfx950": Arch(lds_bytes=160 * 1024, lds_granule=1280)}

LOAD = re.compile(r"^(global|buffer|flat|tbuffer)_load_(?:lds_)?(\w+?)(?:_d16)?(?:_hi)?$")
LOAD_BYTES = {
    "dwordx4": 16,
    "dwordx3": 12,
    "dwordx2": 8,
    "dword": 4,
    "ushort": 2,
    "sshort": 2,
    "short": 2,
    "ubyte": 1,
    "sbyte": 1,
}
STORE = re.compile(r"^(?:global|buffer|flat|tbuffer)_store_(\w+?)(?:_d16_hi)?$")
STORE_BYTES = {"dwordx4": 16, "dwordx3": 12, "dwordx2": 8, "dword": 4, "short": 2, "byte": 1}
LANE_EXCHANGE = ("ds_bpermute", "ds_permute", "ds_swizzle")

# Units of four clocks that the matrix unit is busy with an instruction (LLVM, SISchedule.td).
PASSES = {
    "f32_16x16x16_bf16": 4,
    "f32_16x16x16_f16": 4,
    "f32_32x32x8_bf16": 8,
    "f32_16x16x32_fp8_fp8": 4,
    "f32_32x32x16_fp8_fp8": 8,
    "i32_16x16x32_i8": 4,
    "i32_32x32x16_i8": 8,
    "f32_16x16x32_bf16": 4,
    "f32_16x16x32_f16": 4,
    "f32_32x32x16_bf16": 8,
    "f32_16x16x128_f8f6f4": 8,
    "f32_32x32x64_f8f6f4": 16,
    "i32_16x16x64_i8": 4,
    "i32_32x32x32_i8": 8,
}


def align_up(n, step):
    return -(-n // step) * step


def load_bytes(mnemonic):
    """Bytes one lane gets from a vector-memory load, or None for any other instruction."""
    match = LOAD.match(mnemonic)
    if not match:
        return None
    if match[2] not in LOAD_BYTES:
        raise CodeObjectError(f"unknown load width: {mnemonic}")
    return LOAD_BYTES[match[2]]


def multiplies(ins):
    return ins.mnemonic.startswith(("v_mfma_", "v_smfmac_"))


def matrix_loops(instructions):
    """The outermost loops that multiply, each a list of instructions. A loop that does nothing of it but repeat another,
    as persistent blocks do for every piece of work, gives way to that one."""
    following = successors(instructions)
    reached, work = set(), [0]  # not so the padding in front of a loop that is jumped to
    while work:
        if (n := work.pop()) not in reached:
            reached.add(n)
            work += following[n]

    def steady(loop):
        # Without the instructions it is entered at, only what repeats inside it is still connected.
        entered = {to for n in reached - loop for to in following[n]}
        total = sum(multiplies(instructions[n]) for n in loop)
        for inner in connected(following, loop - entered):
            if sum(multiplies(instructions[n]) for n in inner) == total:
                return steady(inner)
        return loop

    outermost = connected(following, reached)
    outermost = [loop for loop in outermost if any(multiplies(instructions[n]) for n in loop)]
    return [[instructions[n] for n in sorted(steady(loop))] for loop in outermost]


def successors(instructions):
    """The control-flow graph: of each instruction the places of those that may come next, as far as they are here."""
    place = {ins.address: n for n, ins in enumerate(instructions)}
    following = []
    for n, ins in enumerate(instructions):
        to = []
        if ins.mnemonic not in ("s_branch", "s_endpgm", "s_setpc_b64"):
            to.append(place.get(ins.address + ins.size))
        if ins.mnemonic == "s_branch" or ins.mnemonic.startswith("s_cbranch"):
            words = int(ins.operands.split()[0])  # signed 16 bits, in words from the next instruction
            to.append(place.get(ins.address + 4 + 4 * (words - 0x10000 if words >= 0x8000 else words)))
        following.append([n for n in to if n is not None])
    return following


def steady_path(loop):
    """The way once round a loop that most iterations take: of all the one with the most matrix instructions, then the most
    bytes loaded, then the fewest instructions; without masks and rescaling, which others jump to."""
    if not loop:  # a kernel without products in a loop
        return []
    following, whole = successors(loop), set(range(len(loop)))
    entered = [n for n in whole if not any(n in following[m] for m in whole if m == n - 1)] or [0]
    best = ((-1,), [])
    for head in {to for n in whole for to in following[n] if to <= n} or entered:
        best = max(best, longest_way(loop, following, head), key=lambda way: way[0])
    return [loop[n] for n in best[1]]


def longest_way(loop, following, head):
    """From `head` back to it, with what is counted of it. Ways that meet themselves elsewhere are left out."""
    order, state = [], {}
    work = [(head, iter(following[head]))]
    state[head] = "open"
    while work:  # depth first: what may follow a node comes before it in `order`
        node, rest = work[-1]
        for to in rest:
            if to not in state:
                state[to] = "open"
                work.append((to, iter(following[to])))
                break
        else:
            order.append(work.pop()[0])
            state[node] = "done"
    place = {n: i for i, n in enumerate(order)}
    reach = {}  # of a node: the best way on to `head`
    for node in order:
        ways = [((0, 0, 0), None)] if head in following[node] else []
        ways += [(reach[to][0], to) for to in following[node] if to != head and to in reach and place[to] < place[node]]
        if not ways:
            continue
        (products, loaded, rest), to = max(ways, key=lambda way: way[0])
        ins = loop[node]
        reach[node] = ((products + multiplies(ins), loaded + (load_bytes(ins.mnemonic) or 0), rest - 1), to)
    if head not in reach:
        return ((-1,), [])
    way, node = [], head
    while node is not None:
        way.append(node)
        node = reach[node][1]
    return (reach[head][0], way)


def connected(following, nodes):
    """Strongly connected parts of the graph of `nodes`, sets, those without a cycle left out."""
    # Tarjan's algorithm with an explicit stack.
    inside = {n: [to for to in following[n] if to in nodes] for n in sorted(nodes)}
    order, low, on_path, path, found = {}, {}, set(), [], []
    for root in inside:
        if root in order:
            continue
        work = [(root, iter(inside[root]))]
        order[root] = low[root] = len(order)
        path.append(root)
        on_path.add(root)
        while work:
            node, rest = work[-1]
            for to in rest:
                if to not in order:
                    order[to] = low[to] = len(order)
                    path.append(to)
                    on_path.add(to)
                    work.append((to, iter(inside[to])))
                    break
                if to in on_path:
                    low[node] = min(low[node], order[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    part = []
                    while not part or part[-1] != node:
                        part.append(path.pop())
                        on_path.discard(part[-1])
                    if len(part) > 1 or node in inside[node]:
                        found.append(set(part))
    return found


# Clocks of a SIMD that a matrix instruction takes: CDNA3 ISA guide, "MFMA passes", and CDNA4's, 4 clocks a pass.
MATRIX_CLOCKS = {"16x16x16": 16, "16x16x32": 16, "16x16x64": 16, "32x32x8": 32, "32x32x16": 32, "32x32x32": 32, "16x16x128": 32,
                 "32x32x64": 64}
QUARTER_RATE = re.compile(r"^v_(exp|log|rcp|rsq|sqrt|sin|cos|mul_lo|mul_hi|mad_u64_u32|mad_i64_i32)")


def shape_of(mfma):
    """32x32x64 of f32_32x32x64_f8f6f4 and of scale_f32_32x32x64_f8f6f4."""
    return next(part for part in mfma.split("_") if part.count("x") == 2)


class Steady:
    """The steady path of a loop that streams KV: what it spends for each KB of K and V, 1024 bytes that a wave loads."""

    def __init__(self, path, kv_widths):
        self.mix = Mix(path)
        self.kb = sum(width * self.mix.loads[width] for width in kv_widths) / 16
        self.quarter_rate = sum(bool(QUARTER_RATE.match(ins.mnemonic)) for ins in path)
        self.matrix_clocks = sum(n * MATRIX_CLOCKS[shape_of(name)] for name, n in self.mix.mfma.items())
        self.kb_in_flight = min(in_flight(path, kv_widths), default=0)

    def per_kb(self, count):
        return count / self.kb if self.kb else 0.0


def in_flight(path, kv_widths):
    """KB of KV that a wave has on their way behind each wait for vector memory, once round a loop."""
    queue, found = [], []
    for turn in range(3):  # the queue is as it stays from the second on
        found = []
        for ins in path:
            if (width := load_bytes(ins.mnemonic)) is not None:
                queue.append(width / 16 if width in kv_widths else 0)
            elif STORE.match(ins.mnemonic):
                queue.append(0)
            elif ins.mnemonic == "s_waitcnt" and (match := re.search(r"vmcnt\((\d+)\)", ins.operands)):
                if int(match[1]) < len(queue):
                    queue = queue[len(queue) - int(match[1]) :]
                    found.append(sum(queue))
    return found


class Mix:
    """Counts over some instructions."""

    def __init__(self, instructions):
        self.instructions = len(instructions)
        self.mfma = collections.Counter()
        self.loads = collections.Counter()  # bytes a lane -> instructions
        self.stores = collections.Counter()
        self.count = collections.Counter()
        self.vmcnt = []  # of every wait that names one
        for ins in instructions:
            name = ins.mnemonic.removesuffix("_e32").removesuffix("_e64")
            if multiplies(ins):
                self.mfma[name.removeprefix("v_mfma_").removesuffix("_1k")] += 1
            elif (width := load_bytes(name)) is not None:
                self.loads[width] += 1
            elif name.startswith("scratch_"):
                self.count["scratch"] += 1
            elif name.startswith(("global_", "buffer_", "flat_")) and ("_store" in name or "_atomic" in name):
                self.count["store"] += 1
                if match := STORE.match(name):
                    self.stores[STORE_BYTES[match[1]]] += 1
            elif name.startswith(LANE_EXCHANGE):
                self.count["exchange"] += 1
            elif name.startswith("ds_"):
                self.count["lds"] += 1
                self.count["lds_write"] += name.startswith("ds_write")
            elif name.startswith("s_waitcnt"):
                self.count["waitcnt"] += 1
                if match := re.search(r"vmcnt\((\d+)\)", ins.operands):
                    self.vmcnt.append(int(match[1]))
            elif name == "s_barrier":
                self.count["barrier"] += 1
            elif name.startswith("v_accvgpr_"):
                self.count["acc_move"] += 1
            elif name in ("s_swappc_b64", "s_call_b64"):
                self.count["call"] += 1
            elif name == "s_nop":
                self.count["nop"] += 1
            elif name in ("v_readlane_b32", "v_writelane_b32"):
                self.count["lane_move"] += 1
            elif name.startswith("v_"):
                self.count["valu"] += 1
                self.count["dpp"] += name.endswith("_dpp")


@dataclass
class Compiled:
    """One kernel of one code object, with its claims where an entry names it."""

    file: str
    arch: str
    compiler: str
    kernel: code_object.Kernel
    entry: dict
    whole: Mix
    matrix_loops: Mix  # every loop that multiplies
    hot: Mix  # the one of them with the most matrix instructions
    steady: Steady  # its steady path

    @property
    def label(self):
        if not self.entry:
            return self.kernel.name
        return " ".join([self.entry["kernel"], self.entry["spec"], self.entry["policy"]]).strip()

    @property
    def lds(self):
        return self.kernel.metadata[".group_segment_fixed_size"]

    def kv_share(self):
        """Share of the KV bytes that the loop's loads of the claimed widths can have brought, at most 1.

        What the loop multiplies tells how much K and V it needs, and the entry how many matrix instructions one 16-byte
        piece feeds. Counting all loads instead would blame block-table entries and scales for being narrow.
        """
        needed = 16 * self.matrix_loops.mfma.total() / self.entry["mfma_per_load"]
        brought = sum(width * self.matrix_loops.loads[width] for width in self.entry["kv_widths"])
        return min(1.0, brought / needed) if needed else 0.0

    def issue_share(self):
        """Instructions of the hot loop, waits and barriers left out, for each four clocks that its products take: one
        wave issues one of them in that time, so below 1 the matrix unit need not wait for a wave that waits for nothing."""
        passes = sum(PASSES[name] * n for name, n in self.hot.mfma.items())
        return (self.hot.instructions - self.hot.count["waitcnt"] - self.hot.count["barrier"]) / passes

    def waves_per_simd(self):
        """Resident waves: floor(512 / registers), SGPRs alike, blocks that fit the LDS times their waves; at most 8.

        Registers are the descriptor's, what the hardware reserves: align8(align4(VGPR) + AGPR), or more where the
        compiler was told that fewer waves will be resident.
        """
        facts, kernel = ARCHS[self.arch], self.kernel
        waves = min(facts.max_waves_per_simd, facts.register_file_lanes // kernel.allocated_registers)
        waves = min(waves, facts.sgpr_file // align_up(max(1, kernel.metadata[".sgpr_count"]), 16))
        if self.lds:
            blocks = facts.lds_bytes // align_up(self.lds, facts.lds_granule)
            waves = min(waves, blocks * (kernel.metadata[".max_flat_workgroup_size"] // 64) // facts.simds_per_cu)
        return waves


def inspect(path, entries=()):
    """The kernels of a file, each with the entry whose `symbol` its name holds; an entry without one is for any."""
    found = []
    for obj in code_object.read(path):
        if obj.arch not in ARCHS:
            raise CodeObjectError(f"{path}: {obj.arch}: only {', '.join(ARCHS)} are known")
        code_object.disassemble(obj)
        for kernel in obj.kernels:
            multiply = matrix_loops(kernel.instructions)
            entry = next((e for e in entries if e.get("symbol", "") in kernel.name), {})
            # Of a GEMM the loop over whole steps, not the one over the last, which may be as many.
            longer = -1 if entry.get("gemm") else 1
            hot = max(multiply, key=lambda loop: (Mix(loop).mfma.total(), longer * len(loop)), default=[])
            found.append(
                Compiled(
                    pathlib.Path(path).name,
                    obj.arch,
                    obj.compiler,
                    kernel,
                    entry,
                    Mix(kernel.instructions),
                    Mix([ins for loop in multiply for ins in loop]),
                    Mix(hot),
                    Steady(steady_path(hot), entry.get("kv_widths", [16])),
                )
            )
    return found
