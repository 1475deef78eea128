#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What tilewave-sim --time writes of waves: thread-trace files that agree with one another and that `tilewave trace` reads, an
annotated disassembly, a picture. Usage: trace_test.py TILEWAVE_SIM TILEWAVE KERNELS OBJDUMP"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sim, tilewave, kernels, objdump = sys.argv[1:5]
IDLE, EXEC, WAIT, STALL = 1, 2, 3, 4


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = os.path.join(cls.scratch.name, "ui_output_agent_0_dispatch_1")
        cls.svg, cls.listing = (os.path.join(cls.scratch.name, name) for name in ("waves.svg", "kernel.s"))
        cls.command = [sim, "--time", "--chip", "MI355X", "--objdump", objdump, os.path.join(kernels, "clock_gfx950.co"),
                       "--kernel", "stream", "--grid", "600", "--block", "256", "--arg", "buffer:2457600", "--arg",
                       "buffer:2457600", "--json"]
        done = run(*cls.command, "--trace", cls.folder, "--timeline", cls.svg, "--annotate", cls.listing)
        assert done.returncode == 0, done.stderr
        cls.report = json.loads(done.stdout)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return json.load(file)

    def waves(self):
        for se, simds in self.read("filenames.json")["wave_filenames"].items():
            for simd, slots in simds.items():
                for slot, numbers in slots.items():
                    for number, (name, begin, end) in numbers.items():
                        self.assertEqual(name, f"se{se}_sm{simd}_sl{slot}_wv{number}.json")
                        yield self.read(name), begin, end

    def test_waves_agree_with_their_steps_and_with_the_code(self):
        rows = self.read("code.json")["code"]
        self.assertIn("modelled on MI355X", rows[0][0])
        sums = {i: [0, 0, 0, 0] for i in range(len(rows))}
        waves = list(self.waves())
        self.assertEqual(len(waves), 48)  # of 19 blocks of four waves a shader engine, three are of its first CU
        for trace, begin, end in waves:
            wave = trace["wave"]
            self.assertEqual((wave["begin"], wave["end"], trace["duration"]), (begin, end, end - begin))
            self.assertEqual(trace["num_insts"], len(wave["instructions"]))
            self.assertEqual(sum(clk for _, clk in wave["timeline"]), end - begin)
            states = dict.fromkeys((IDLE, EXEC, WAIT, STALL), 0)
            for state, clk in wave["timeline"]:
                states[state] += clk
            last = begin
            waited = 0
            for at, kind, stall, duration, row in wave["instructions"]:
                self.assertGreaterEqual(at, last)
                for k, value in enumerate((1, duration, stall, at - last)):
                    sums[row][k] += value
                mnemonic = rows[row][0].split()[0]
                wanted = {"global_load_dwordx4": 4, "s_waitcnt": 9, "s_endpgm": 11, "s_load_dwordx4": 1}
                self.assertEqual(kind, wanted.get(mnemonic, kind), mnemonic)
                waited += stall if mnemonic == "s_waitcnt" else 0
                last = at + duration
            self.assertEqual(last, end)
            self.assertEqual(states[WAIT], waited)
            loads = [i for i, row in enumerate(rows) if "load" in row[0]]
            self.assertEqual(sorted(p for _, producers in wave["waitcnt"] for p, _ in producers), loads)
        self.assertGreater(states[WAIT], states[EXEC])  # a stream waits for memory
        for i, row in enumerate(rows):
            self.assertEqual([i, *row[6:]], [row[2], *sums[i]], row[0])

    def test_occupancy_and_states_over_time_are_those_of_the_waves(self):
        occupancy = self.read("occupancy.json")
        running = {}
        for se in "0123":
            for at, cu, simd, slot, starts, kernel in occupancy[se]:
                key = (se, cu, simd, slot)
                self.assertEqual((running.get(key, 0), kernel), (0 if starts else 1, 1))
                running[key] = starts
        self.assertEqual(set(running.values()), {0})
        self.assertIn("modelled", occupancy["dispatches"]["1"])
        self.assertEqual(sum(row[4] for se in "0123" for row in occupancy[se]), 75 * 4)  # an eighth of 600 blocks
        for state in (IDLE, EXEC, WAIT, STALL):
            over = self.read(f"wstates{state}.json")
            self.assertEqual(over["time"], sorted(over["time"]))
            area = sum(n * (b - a) for n, a, b in zip(over["state"], over["time"], over["time"][1:]))
            self.assertEqual(area, sum(clk for wave, _, _ in self.waves() for s, clk in wave["wave"]["timeline"] if s == state))
        clock = self.read("realtime.json")["SE3"][1]
        self.assertAlmostEqual(clock[0] / clock[1] * 100, self.report["mhz"], delta=0.01 * self.report["mhz"])
        self.assertEqual(self.read("snapshots.json")["modelled"], "MI355X")

    def test_tilewave_trace_reads_it(self):
        done = run(tilewave, "trace", "report", self.scratch.name, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.dumps(json.loads(done.stdout))
        self.assertIn("modelled on MI355X", report)
        self.assertIn("VMEM-wait", report)

    def test_the_picture_and_the_listing_show_what_was_timed(self):
        picture = xml.etree.ElementTree.parse(self.svg).getroot()
        texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("SE 3 SIMD 3 slot 0", texts)
        self.assertTrue(any("modelled on MI355X, not measured" in text for text in texts))
        with open(self.listing, encoding="utf-8") as file:
            lines = file.read().splitlines()
        by_address = {f"{each['address']:x}": each for each in self.report["instructions"]}
        shown = {}
        for line in lines[2:]:
            cells = line.split()
            causes = {cells[i]: int(cells[i + 1]) for i in range(3, len(cells) - 1) if cells[i] in ("vmcnt", "lgkmcnt")}
            address = next((cell for cell in cells if cell in by_address), None)
            if address:
                shown[address] = (int(cells[0]), causes)
        self.assertEqual({a: each["hits"] for a, each in by_address.items()}, {a: hits for a, (hits, _) in shown.items()})
        self.assertTrue(any(causes.get("vmcnt", 0) > 50 for _, causes in shown.values()))

    def test_links_stay_links(self):
        for option in ("--timeline", "--annotate"):
            link, target = (os.path.join(self.scratch.name, option[2:] + end) for end in (".link", ".target"))
            os.symlink(target, link)
            self.assertEqual(run(*self.command, option, link).returncode, 0)
            self.assertTrue(os.path.islink(link) and os.path.getsize(target) > 0, option)

    def test_where_nothing_can_be_written_is_said(self):
        for option in ("--timeline", "--annotate", "--trace"):
            done = run(*self.command, option, "/dev/null/x")
            self.assertEqual((done.returncode, done.stdout), (2, ""), option)
            self.assertRegex(done.stderr, r"\Atilewave-sim: [^\n]+\n\Z")
        self.assertNotEqual(run(sim, "--trace", "x", kernels).returncode, 0)  # only with --time


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
