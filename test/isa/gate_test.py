#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every rule of `tilewave isa gate` fails where it should and nowhere else; test/tools/tilewave/isa_gate_test.cpp breaks those whose
violation no compiler would produce.

usage: gate_test.py TILEWAVE CASES_DIR     CASES_DIR holds <case>_<arch>.co, compiled from gate_cases.hip
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
TILEWAVE, CASES = sys.argv[1], pathlib.Path(sys.argv[2])
BROKEN = 15  # the exit status where a rule is
BEGIN, END = "<!-- begin: written by tilewave isa page -->", "<!-- end -->"
SHAPE = {"gfx942": "f32_16x16x16_bf16", "gfx950": "f32_16x16x32_bf16"}


def isa(*words):
    return subprocess.run([TILEWAVE, "isa", *map(str, words)], capture_output=True, text=True)


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
        done = isa("gate", "--entries", file.name, CASES)
    found = {tuple(line.split(": ")[1:3]) for line in done.stdout.splitlines() if line.startswith("violation: ")}
    return done.returncode, found, done.stderr


class Gate(unittest.TestCase):
    def check(self, case, rules, **changed):
        for arch in SHAPE:
            with self.subTest(case=case, arch=arch):
                status, found, stderr = gate([entry(case, arch, **changed)])
                self.assertEqual(found, {(f"{case}_{arch}.co", rule) for rule in rules}, stderr)
                self.assertEqual(status, BROKEN if rules else 0, stderr)

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
            self.assertEqual((status, found), (BROKEN, {(f"MuchLds_{arch}.co", "waves")}))
            status, found, _ = gate([entry("MuchLds", arch, lds_bytes=lds - 16, waves_per_simd=1)])
            self.assertEqual((status, found), (BROKEN, {(f"MuchLds_{arch}.co", "lds")}))

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
        self.assertEqual((status, found), (BROKEN, {("Good_gfx942.co", "arch"), ("Good_gfx942.co", "mfma")}))

    def test_one_bad_kernel_among_good_ones(self):
        status, found, _ = gate([entry("Good", "gfx942"), entry("NarrowLoads", "gfx942"), entry("Good", "gfx950")])
        self.assertEqual((status, found), (BROKEN, {("NarrowLoads_gfx942.co", "kv_width")}))

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
                self.assertEqual(status, BROKEN if rules else 0, stderr)

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


class Page(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.page, self.entries, self.tables = (pathlib.Path(scratch.name) / name for name in ("p.md", "e.json", "t.json"))

    def check(self, kernels, *more, full=False):
        described = {"schema": "tilewave-isa-entries/1", "archs": {}, "entries": kernels}
        self.entries.write_text(json.dumps(described))
        gate = isa("gate", "--entries", self.entries, CASES, "--tables", self.tables, *(["--full"] if full else []))
        self.assertIn(gate.returncode, (0, BROKEN), gate.stderr)  # the rules are another matter here
        done = isa("page", self.page, "--tables", self.tables, *more)
        self.said = done.stdout
        return done.returncode

    def test_page_and_kernels_are_held_together(self):
        good, one_wave = entry("Good", "gfx950"), entry("OneWave", "gfx950")
        self.page.write_text("no place for a table")
        self.assertEqual(self.check([good], "--update", full=True), 2)
        self.page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
        self.assertEqual(self.check([good]), BROKEN)
        self.assertEqual(self.check([good], "--update"), 2)  # some kernels are no page
        self.assertEqual(self.check([good], "--update", full=True), 0)
        self.assertEqual(self.check([good]), 0)
        self.assertEqual(self.check([good, one_wave]), BROKEN)  # missing
        self.assertEqual(self.check([one_wave]), BROKEN)  # and stale
        fewer_waves = one_wave | {"spec": "Good"}  # the same name, other code
        self.assertEqual(self.check([fewer_waves]), BROKEN)
        self.check([good])
        table = self.page.read_text()
        cells = next(line for line in table.splitlines() if line.startswith("| gfx950 ")).split("|")
        for column in ("VGPR", "AGPR", "SGPR", "LDS", "scratch", "spills", "waves/SIMD"):
            at = next(line for line in table.splitlines() if line.startswith("| arch")).split("|")
            at = [cell.strip() for cell in at].index(column)
            other = cells[:at] + [f" {int(cells[at]) + 1} "] + cells[at + 1 :]
            self.page.write_text(table.replace("|".join(cells), "|".join(other)))
            done = isa("page", self.page, "--tables", self.tables)
            self.assertEqual(done.returncode, BROKEN, column)
            self.assertIn(f"{column} {cells[at].strip()}", done.stdout)
        self.page.write_text(table.replace("Compiled by ", "Compiled by an older "))
        self.assertEqual(self.check([fewer_waves]), 0)
        self.assertIn("only the list of kernels was compared", self.said)  # which ctest shows as skipped
        self.assertEqual(self.check([one_wave]), BROKEN)
        self.assertNotIn("only the list of kernels was compared", self.said)
        self.assertTrue(self.page.read_text().startswith("before\n") and self.page.read_text().endswith("after\n"))

    def test_row_kernels_are_held_by_the_worst_of_their_policy(self):
        self.page.write_text(f"{BEGIN}\n{END}\n")

        def rows(cases, *more, **options):
            kernels = [entry(case, "gfx950", mfma=None, spec=case, policy="p", row=Rows.CLAIM) for case in cases]
            return self.check(kernels, *more, **options)

        self.assertEqual(rows(["RowsGood", "RowsSecondBarrier"], "--update", full=True), 0)
        table = self.page.read_text()
        self.assertEqual(len([line for line in table.splitlines() if line.startswith("| gfx950 ")]), 1)
        self.assertEqual(rows(["RowsGood", "RowsSecondBarrier"], full=True), 0)
        self.assertEqual(rows(["RowsGood"], full=True), BROKEN)  # one spec less
        self.assertEqual(rows(["RowsGood", "RowsThroughLds"], full=True), BROKEN)  # more LDS
        self.assertEqual(rows(["RowsGood"]), 0)  # some specs are enough, but their policy must be listed
        self.page.write_text(table.replace("| case p ", "| case q "))
        self.assertEqual(rows(["RowsGood"]), BROKEN)


class Reports(unittest.TestCase):
    def test_each_pass_of_a_fat_binary_has_the_body_of_its_own_kernel_only(self):
        kernels = json.loads(isa("show", "--json", CASES / "fat.hipfb").stdout)["kernels"]
        self.assertEqual([kernel["arch"] for kernel in kernels], ["gfx942", "gfx942", "gfx950", "gfx950"])
        for kernel in kernels:
            if kernel["arch"] in kernel["symbol"]:
                self.assertEqual(set(kernel["loop"]["matrix"]), {SHAPE[kernel["arch"]]})
            else:
                self.assertLess(kernel["whole"]["instructions"], 4)

    def test_tables_without_claims(self):
        text = isa("table", CASES / "Good_gfx950.co").stdout
        self.assertIn("Resources and whole kernel:", text)
        self.assertIn("Hot loop:", text)
        self.assertIn("### Hot loop", isa("table", CASES / "Good_gfx950.co", "--markdown").stdout)
        self.assertEqual(json.loads(isa("table", CASES / "fat.hipfb", "--json").stdout)["schema"], "tilewave.isa_tables/1")

    def test_a_broken_rule_as_json(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"schema": "tilewave-isa-entries/1", "archs": {}, "entries": [entry("Calling", "gfx950")]}, file)
            file.flush()
            done = isa("gate", "--json", "--entries", file.name, CASES)
        report = json.loads(done.stdout)
        self.assertEqual((done.returncode, report["kernels"]), (BROKEN, 1))
        self.assertEqual([(v["file"], v["rule"]) for v in report["violations"]], [("Calling_gfx950.co", "call")])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
