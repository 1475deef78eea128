#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every rule of `tools/isa gate` fails where it should and nowhere else.

usage: gate_test.py TOOLS_DIR CASES_DIR     CASES_DIR holds <case>_<arch>.co, compiled from gate_cases.hip
"""

import collections
import copy
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
TOOLS, CASES = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
SHAPE = {"gfx942": "f32_16x16x16_bf16", "gfx950": "f32_16x16x32_bf16"}


def load_tool():
    loader = importlib.machinery.SourceFileLoader("isa", str(TOOLS / "isa"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("isa", loader))
    sys.modules["isa"] = module
    loader.exec_module(module)
    return module


isa = load_tool()
stats = sys.modules["kernel_stats"]
gate_rules = sys.modules["gate_rules"]


def entry(case, arch, **changed):
    claims = {
        "code_object": f"{case}_{arch}.co",
        "arch": arch,
        "kernel": "case",
        "spec": case,
        "policy": "",
        "waves_per_simd": 2,
        "waves_per_block": 4,
        "lds_bytes": 0,
        "mfma": [SHAPE[arch]],
        "mfma_per_load": {"gfx942": 2, "gfx950": 1}[arch],
        "kv_widths": [16],
    }
    return claims | changed


def gate(entries, archs=None):
    """(exit status, {(file, rule)}, stderr) of the gate as a user runs it."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"schema": "tilewave-isa-entries/1", "archs": archs or {}, "entries": entries}, file)
        file.flush()
        done = subprocess.run(
            [sys.executable, TOOLS / "isa", "gate", "--entries", file.name, CASES], capture_output=True, text=True
        )
    found = {tuple(line.split(": ")[1:3]) for line in done.stdout.splitlines() if line.startswith("violation: ")}
    return done.returncode, found, done.stderr


class Gate(unittest.TestCase):
    def check(self, case, rules, **changed):
        for arch in SHAPE:
            with self.subTest(case=case, arch=arch):
                status, found, stderr = gate([entry(case, arch, **changed)])
                self.assertEqual(found, {(f"{case}_{arch}.co", rule) for rule in rules}, stderr)
                self.assertEqual(status, 1 if rules else 0, stderr)

    def test_good_kernel_passes(self):
        self.check("Good", [])

    def test_narrow_loads(self):
        self.check("NarrowLoads", ["kv_width"])

    def test_narrow_loads_in_the_loop_of_persistent_blocks(self):
        self.check("GoodPersistent", [])
        self.check("NarrowPersistent", ["kv_width"])

    def test_spills(self):
        self.check("Spilling", ["scratch", "spill"])

    def test_registers_cost_a_wave(self):
        self.check("OneWave", ["waves"])

    def test_lds_costs_a_wave(self):
        for arch, lds in (("gfx942", 32784), ("gfx950", 81936)):
            status, found, _ = gate([entry("MuchLds", arch, lds_bytes=lds)])
            self.assertEqual((status, found), (1, {(f"MuchLds_{arch}.co", "waves")}))
            status, found, _ = gate([entry("MuchLds", arch, lds_bytes=lds - 16, waves_per_simd=1)])
            self.assertEqual((status, found), (1, {(f"MuchLds_{arch}.co", "lds")}))

    def test_calls(self):
        self.check("Calling", ["call"])

    def test_claims_that_the_code_does_not_keep(self):
        self.check("Good", ["waves"], waves_per_simd=9)
        self.check("Good", ["block"], waves_per_block=8)
        self.check("Good", ["mfma"], mfma=["f32_32x32x8_bf16"])

    def test_the_steady_path_keeps_what_was_reached(self):
        reached = {"steady_valu": 100, "steady_matrix": 100, "steady_flight": 0}
        self.check("Good", [], steady=reached)
        self.check("Good", ["steady_valu"], steady=reached | {"steady_valu": 0.5})
        self.check("Good", ["steady_matrix"], steady=reached | {"steady_matrix": 1})
        self.check("Good", ["steady_flight"], steady=reached | {"steady_flight": 100})
        self.check("Good", ["kv_width", "steady"], steady=reached, kv_widths=[2])

    def test_half_rate_shape_on_gfx950(self):
        status, found, _ = gate([entry("Good", "gfx942") | {"arch": "gfx950", "mfma": [SHAPE["gfx950"]]}])
        self.assertEqual((status, found), (1, {("Good_gfx942.co", "arch"), ("Good_gfx942.co", "mfma")}))

    def test_one_bad_kernel_among_good_ones(self):
        status, found, _ = gate([entry("Good", "gfx942"), entry("NarrowLoads", "gfx942"), entry("Good", "gfx950")])
        self.assertEqual((status, found), (1, {("NarrowLoads_gfx942.co", "kv_width")}))

    def test_rules_of_gemm(self):
        claim = {"mfma": "f32_32x32x16_bf16", "valu_of_products": 0, "writes_lds": False}
        good = ["v_mfma_f32_32x32x16_bf16", "ds_read_b128", "buffer_load_dwordx4", "s_waitcnt vmcnt(4)"]
        for added, rule in (
            ([], None),
            (["v_mfma_f32_32x32x8_bf16_1k"], "gemm_mfma"),
            (["s_waitcnt vmcnt(0)"], "gemm_drain"),
            (["v_add_u32_e32"], "gemm_valu"),
            (["ds_write_b128"], "gemm_lds"),
        ):
            lines = [(line.split() + [""])[:2] for line in good + added]
            mix = stats.Mix([types.SimpleNamespace(mnemonic=name, operands=rest) for name, rest in lines])
            found = gate_rules.gemm_violations(types.SimpleNamespace(whole=mix, hot=mix), claim)
            self.assertEqual([name for name, _ in found], [rule] if rule else [])

    def test_bad_input_is_an_error_of_its_own(self):
        for entries, archs in (
            ([], {}),
            ([entry("Absent", "gfx950")], {}),
            ([entry("Good", "gfx950")], {"gfx950": {"lds_bytes": 1}}),
        ):
            status, found, stderr = gate(entries, archs)
            self.assertEqual((status, found, len(stderr.splitlines())), (2, set(), 1))


class Rows(unittest.TestCase):
    CLAIM = {
        "vector": True,
        "bytes_in_flight": 64,
        "wide_loads": 4,
        "wide_stores": 4,
        "narrow_load_bytes": 0,
        "narrow_store_bytes": 0,
        "dpp": 8,
        "barriers": 1,
    }

    def check(self, case, rules, lds=20, **changed):
        for arch in SHAPE:
            with self.subTest(case=case, arch=arch, **changed):
                claims = entry(case, arch, mfma=None, waves_per_simd=8, lds_bytes=lds, row=self.CLAIM | changed)
                status, found, stderr = gate([claims])
                self.assertEqual(found, {(f"{case}_{arch}.co", rule) for rule in rules}, stderr)
                self.assertEqual(status, 1 if rules else 0, stderr)

    def test_good_rows_pass(self):
        self.check("RowsGood", [])

    def test_a_narrow_access_among_wide_ones(self):
        self.check("RowsNarrowLoad", ["row_width"])
        self.check("RowsNarrowStore", ["row_width"])
        self.check("RowsNarrowLoad", [], narrow_load_bytes=4)  # that one is no part of a row
        self.check("RowsNarrowStore", [], narrow_store_bytes=4)
        self.check("RowsNarrowLoad", ["row_width"], narrow_load_bytes=3)
        self.check("RowsNarrowLoad", [], vector=False)

    def test_a_row_that_is_not_there(self):
        self.check("RowsGood", ["row_width"], wide_loads=5)
        self.check("RowsGood", ["row_width"], wide_stores=5)

    def test_a_wait_between_the_loads(self):
        self.check("RowsEarlyWait", ["row_flight"])
        self.check("RowsEarlyWait", [], bytes_in_flight=32)
        self.check("RowsGood", ["row_flight"], bytes_in_flight=80)

    def test_reductions_outside_the_registers(self):
        self.check("RowsExchange", ["row_lanes"], dpp=2)
        self.check("RowsThroughLds", ["row_lanes"], lds=1040, dpp=6, barriers=0)
        self.check("RowsGood", ["row_lanes"], dpp=9)

    def test_barriers(self):
        self.check("RowsSecondBarrier", ["row_barriers"])
        self.check("RowsGood", ["row_lanes", "row_barriers"], barriers=0)

    def test_kernels_of_one_file_are_told_by_their_symbols(self):
        claims = entry("RowsGood", "gfx942", mfma=None, lds_bytes=20, row=self.CLAIM)
        self.assertEqual(gate([claims | {"symbol": "entry"}])[0], 0)
        status, found, stderr = gate([claims | {"symbol": "another"}])
        self.assertEqual((status, found, len(stderr.splitlines())), (2, set(), 1))
        self.assertEqual(gate([claims | {"symbol": "entry"}, claims | {"symbol": "another"}])[0], 2)


class Rules(unittest.TestCase):
    """Rules whose violation no compiler would produce, on edited facts of a real kernel."""

    def setUp(self):
        self.compiled = stats.inspect(CASES / "Good_gfx942.co", [entry("Good", "gfx942")])[0]

    def rules(self, **metadata):
        edited = copy.deepcopy(self.compiled)
        for key, value in metadata.items():
            edited.kernel.metadata["." + key] = value
        edited.entry["lds_bytes"] = edited.lds
        return {rule for rule, _ in isa.violations(edited)}

    def test_lds_above_the_room_limit(self):
        self.assertEqual(self.rules(group_segment_fixed_size=64 * 1024, max_flat_workgroup_size=256), {"waves"})
        self.assertEqual(self.rules(group_segment_fixed_size=64 * 1024 + 16), {"lds", "waves"})

    def test_each_sign_of_scratch_alone(self):
        self.assertEqual(self.rules(private_segment_fixed_size=4), {"scratch"})
        self.assertEqual(self.rules(uses_dynamic_stack=True), {"scratch"})
        self.assertEqual(self.rules(vgpr_spill_count=1), {"spill"})
        self.assertEqual(self.rules(sgpr_spill_count=1), {"spill"})

    def test_a_second_matrix_shape(self):
        edited = copy.deepcopy(self.compiled)
        edited.whole.mfma["f32_32x32x8_bf16"] = 1
        self.assertEqual([rule for rule, _ in isa.violations(edited)], ["mfma"])

    def test_share_of_wide_loads(self):
        """20 loads feed 40 matrix instructions: 95 % stands between one and two of them cut into narrow ones."""
        for narrow, rules in ((0, []), (1, []), (2, ["kv_width"])):
            edited = copy.deepcopy(self.compiled)
            edited.matrix_loops.mfma[SHAPE["gfx942"]] = 40
            edited.matrix_loops.loads = collections.Counter({16: 20 - narrow, 4: 4 * narrow + 4})
            self.assertEqual([rule for rule, _ in isa.violations(edited)], rules)

    def test_share_of_claimed_widths(self):
        """A value layout that has pieces of 8 bytes claims them beside the 16 of K."""
        edited = copy.deepcopy(self.compiled)
        edited.matrix_loops.mfma[SHAPE["gfx942"]] = 40
        edited.matrix_loops.loads = collections.Counter({16: 10, 8: 20, 4: 6})
        self.assertEqual([rule for rule, _ in isa.violations(edited)], ["kv_width"])
        edited.entry = edited.entry | {"kv_widths": [16, 8]}
        self.assertEqual([rule for rule, _ in isa.violations(edited)], [])

    def test_no_loop(self):
        edited = copy.deepcopy(self.compiled)
        edited.matrix_loops = stats.Mix([])
        self.assertEqual([rule for rule, _ in isa.violations(edited)], ["kv_width"])


class Docs(unittest.TestCase):
    def test_page_and_kernels_are_held_together(self):
        with tempfile.TemporaryDirectory() as scratch:
            page, entries = pathlib.Path(scratch) / "page.md", pathlib.Path(scratch) / "entries.json"

            def docs(kernels, *more):
                described = {"schema": "tilewave-isa-entries/1", "archs": {}, "entries": kernels}
                entries.write_text(json.dumps(described))
                command = [sys.executable, TOOLS / "isa", "docs", "--entries", entries, "--page", page, CASES, *more]
                done = subprocess.run(command, capture_output=True, text=True)
                said.append(done.stdout)
                return done.returncode

            said = []

            good, one_wave = entry("Good", "gfx950"), entry("OneWave", "gfx950")
            page.write_text("no place for a table")
            self.assertEqual(docs([good], "--update"), 2)
            page.write_text(f"before\n{isa.BEGIN}\n{isa.END}\nafter\n")
            self.assertEqual(docs([good]), 1)
            self.assertEqual(docs([good], "--update"), 0)
            self.assertEqual(docs([good]), 0)
            self.assertEqual(docs([good, one_wave]), 1)  # missing
            self.assertEqual(docs([one_wave]), 1)  # and stale
            fewer_waves = one_wave | {"spec": "Good"}  # the same name, other code
            self.assertEqual(docs([fewer_waves]), 1)
            table = page.read_text()
            cells = next(line for line in table.splitlines() if line.startswith("| gfx950 ")).split("|")
            for column in ("VGPR", "AGPR", "SGPR", "LDS", "scratch", "spills", "waves/SIMD"):
                at = next(line for line in table.splitlines() if line.startswith("| arch")).split("|")
                at = [cell.strip() for cell in at].index(column)
                other = cells[:at] + [f" {int(cells[at]) + 1} "] + cells[at + 1 :]
                page.write_text(table.replace("|".join(cells), "|".join(other)))
                self.assertEqual(docs([good]), 1, column)
                self.assertIn(f"{column} {cells[at].strip()}", said[-1])
            page.write_text(table.replace("Compiled by ", "Compiled by an older "))
            self.assertEqual(docs([fewer_waves]), 0)
            self.assertIn("only the list of kernels was compared", said[-1])  # which ctest shows as skipped
            self.assertEqual(docs([one_wave]), 1)
            self.assertTrue(page.read_text().startswith("before\n") and page.read_text().endswith("after\n"))


    def test_row_kernels_are_held_by_the_worst_of_their_policy(self):
        with tempfile.TemporaryDirectory() as scratch:
            page, entries = pathlib.Path(scratch) / "page.md", pathlib.Path(scratch) / "entries.json"
            page.write_text(f"{isa.BEGIN}\n{isa.END}\n")

            def docs(cases, *more):
                kernels = [entry(case, "gfx950", mfma=None, spec=case, policy="p", row=Rows.CLAIM) for case in cases]
                entries.write_text(json.dumps({"schema": "tilewave-isa-entries/1", "archs": {}, "entries": kernels}))
                command = [sys.executable, TOOLS / "isa", "docs", "--entries", entries, "--page", page, CASES, *more]
                return subprocess.run(command, capture_output=True, text=True).returncode

            self.assertEqual(docs(["RowsGood", "RowsSecondBarrier"], "--update"), 0)
            table = page.read_text()
            self.assertEqual(len([line for line in table.splitlines() if line.startswith("| gfx950 ")]), 1)
            self.assertEqual(docs(["RowsGood", "RowsSecondBarrier"], "--full"), 0)
            self.assertEqual(docs(["RowsGood"], "--full"), 1)  # one spec less
            self.assertEqual(docs(["RowsGood", "RowsThroughLds"], "--full"), 1)  # more LDS
            self.assertEqual(docs(["RowsGood"]), 0)  # some specs are enough, but their policy must be listed
            page.write_text(table.replace("| case p ", "| case q "))
            self.assertEqual(docs(["RowsGood"]), 1)


class FatBinary(unittest.TestCase):
    def test_each_pass_has_the_body_of_its_own_kernel_only(self):
        compiled = stats.inspect(CASES / "fat.hipfb")
        self.assertEqual([c.arch for c in compiled], ["gfx942", "gfx942", "gfx950", "gfx950"])
        for c in compiled:
            if c.arch in c.kernel.name:
                self.assertEqual(set(c.hot.mfma), {SHAPE[c.arch]})
            else:
                self.assertLess(len(c.kernel.instructions), 4)


class Reading(unittest.TestCase):
    def test_load_widths(self):
        for name, size in (
            ("global_load_dwordx4", 16),
            ("buffer_load_dwordx3", 12),
            ("flat_load_dwordx2", 8),
            ("global_load_dword", 4),
            ("global_load_lds_dwordx4", 16),
            ("global_load_short_d16_hi", 2),
            ("global_load_ubyte", 1),
            ("buffer_load_ushort", 2),
            ("global_store_dwordx4", None),
            ("s_load_dwordx4", None),
            ("ds_read_b128", None),
        ):
            self.assertEqual(stats.load_bytes(name), size, name)
        with self.assertRaises(stats.CodeObjectError):
            stats.load_bytes("buffer_load_format_xyzw")

    def test_msgpack(self):
        cases = {
            b"\x93\x01\xff\xa2hi": [1, -1, "hi"],
            b"\x82\xa1a\xc3\xa1b\xcd\x01\x00": {"a": True, "b": 256},
            b"\xdc\x00\x02\xd1\xff\x00\xc0": [-256, None],
            b"\xd9\x03abc": "abc",
            b"\xcf" + b"\0" * 7 + b"\x07": 7,
        }
        for data, value in cases.items():
            self.assertEqual(stats.code_object.unpack_msgpack(data), (value, len(data)))

    def test_loops(self):
        """Two nested loops with the inner one out of line behind the end, and straight code around them. The inner one is
        it where nothing else multiplies."""
        make = stats.code_object.Instruction
        code = [
            ("s_nop", "0"),
            ("v_mov_b32", ""),
            ("s_branch", "4"),
            ("s_cbranch_scc1", "65533"),
            ("s_endpgm", ""),
            ("s_nop", "0"),
            ("s_nop", "0"),
            ("s_add_u32", ""),
            ("s_cbranch_scc0", "65534"),
            ("s_branch", "65529"),
        ]
        for multiply, loops in (([0, 5], []), ([1], [[1, 2, 3, 7, 8, 9]]), ([1, 7], [[1, 2, 3, 7, 8, 9]]), ([7], [[7, 8]])):
            lines = [("v_mfma_f32_16x16x16_bf16", "") if n in multiply else line for n, line in enumerate(code)]
            found = stats.matrix_loops([make(4 * n, name, operands, 4) for n, (name, operands) in enumerate(lines)])
            self.assertEqual([[i.address // 4 for i in loop] for loop in found], loops)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
