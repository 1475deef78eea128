#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""gate_costs_test.py GATE_COSTS: steps and tests are counted for the op they belong to, each once."""
import os
import subprocess
import sys
import tempfile
import unittest

LOG = """# ninja log v5
0\t4000\t1\tCMakeFiles/tilewave_norm_entries.dir/generated/norm_gfx942_0.cpp.o\ta1
0\t9000\t1\tcode_objects/norm_gfx950_0.co\ta2
4000\t6000\t1\ttest/isa_sim/gemm_entries_gfx950.o\ta3
4000\t6000\t1\ttest/isa_sim/gemm_entries_gfx950.d\ta3
6000\t7000\t1\ttools/sim/CMakeFiles/tilewave_sim.dir/exec/mfma.cpp.o\ta4
7000\t9000\t1\ttools/sim/CMakeFiles/tilewave_sim.dir/exec/mfma.cpp.o\ta4
"""
RESULTS = """<testsuite><testcase name="ops_norm/sums" time="3.5"/><testcase name="isa/bench_pa exports a bundle" time="6"/>
<testcase name="tools/check_tree" time="1"/></testsuite>"""
gate_costs = sys.argv.pop(1)


class Costs(unittest.TestCase):
    def test_each_op(self):
        with tempfile.TemporaryDirectory() as build:
            os.mkdir(f"{build}/Testing")
            for path, text in ((".ninja_log", LOG), ("Testing/results.xml", RESULTS)):
                with open(f"{build}/{path}", "w", encoding="utf-8") as file:
                    file.write(text)
            lines = subprocess.run([gate_costs, build], capture_output=True, text=True, check=True).stdout.splitlines()
        costs = {line[:24].strip(): line[24:].split() for line in lines[1:]}
        self.assertEqual(costs, {"norm": ["4", "9", "4"], "paged_attention": ["0", "0", "6"], "gemm": ["0", "2", "0"],
                                 "simulator": ["2", "0", "0"], "other": ["0", "0", "1"], "all": ["6", "11", "10"]})
        self.assertEqual(lines[1].split()[0], "norm")  # the dearest first

    def test_no_build(self):
        done = subprocess.run([gate_costs, "/nonexistent"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("run tools/quickstart", done.stderr)


if __name__ == "__main__":
    unittest.main()
