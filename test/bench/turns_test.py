#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Python's sampler of several sides, on a PyTorch that only counts time, and what in_turns.py refuses. Usage: turns_test.py
BENCH/PEERS"""
import math
import os
import subprocess
import sys
import tempfile
import types
import unittest

peers = sys.argv.pop(1)
sys.path.insert(0, peers)
import turns  # noqa: E402


class Device:
    """What turns.py asks of torch. A call takes the milliseconds that it adds to `clock`; `order` is what ran."""

    def __init__(self, sensors=True):
        self.clock, self.order, device = 0.0, "", self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = device.clock

            def synchronize(self):
                pass

            def elapsed_time(self, end):
                return end.at - self.at

        def flush(name):
            device.order += name
            device.clock += 50

        buffer = types.SimpleNamespace(amax=lambda: flush("r"), zero_=lambda: flush("w"))
        self.int32, self.randint = "int32", lambda *_, **__: buffer
        self.cuda = types.SimpleNamespace(Event=Event, synchronize=lambda: None,
                                          get_device_properties=lambda _: types.SimpleNamespace(L2_cache_size=1 << 20))
        if sensors:
            self.cuda.clock_rate, self.cuda.power_draw = lambda: 1500, lambda: 400000

    def side(self, name, milliseconds):
        def call():
            self.order += name
            self.clock += milliseconds
        return call


class Turns(unittest.TestCase):
    def test_sides_take_turns_and_another_begins_each_round(self):
        device = Device()
        found = turns.Turns(device, 0.001).sample({"a": device.side("a", 2), "b": device.side("b", 3)})
        self.assertEqual((found["a"].us(), found["b"].us()), (2000, 3000))
        self.assertEqual((found["a"].sm_mhz, found["b"].power_w), (1500, 400))
        timed = "a" * 11 + "b" * 11  # how long the host takes to queue them
        self.assertEqual(device.order.replace("r", ""), timed + "abba" * 5)
        self.assertEqual(len(found["a"].samples), 10)  # quiet at once
        self.assertNotIn("w", device.order)

    def test_states(self):
        slept, loaded = [], Device()
        sleep, turns.time.sleep = turns.time.sleep, slept.append
        self.addCleanup(setattr, turns.time, "sleep", sleep)
        turns.Turns(loaded, 0.001, "rested").sample({"a": loaded.side("a", 2)})
        self.assertEqual(slept, [turns.REST_SECONDS] + [turns.PAUSE_SECONDS] * 10)
        load, turns.LOAD_SECONDS = turns.LOAD_SECONDS, 0.01
        self.addCleanup(setattr, turns, "LOAD_SECONDS", load)
        before = len(loaded.order)
        turns.Turns(loaded, 0.001, "sustained").sample({"a": loaded.side("a", 2), "b": loaded.side("b", 2)})
        self.assertIn("a" * turns.BURST + "b" * turns.BURST, loaded.order[before:])
        self.assertEqual(len(slept), 11)

    def test_a_flush_that_writes(self):
        device = Device()
        turns.Turns(device, 0.001, flush="write").sample({"a": device.side("a", 2)})
        self.assertIn("wa", device.order)
        self.assertNotIn("r", device.order)

    def test_without_sensors_there_is_no_number(self):
        device = Device(sensors=False)
        found = turns.Turns(device, 0.001).sample({"a": device.side("a", 2)})
        self.assertTrue(math.isnan(found["a"].sm_mhz) and math.isnan(found["a"].power_w))

    def test_bad_options(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as names:
            names.write("name\nsoftmax/sm90/bf16/c8192/r32768/causal0/l256\n")
            names.flush()
            for word, *options in (("--peers", "--peers=theirs"), ("--state", "--state=hot"), ("--flush", "--flush=none"),
                                   ("--max-seconds", "--max-seconds=0"), ("--torch", "--torch=/nonexistent"),
                                   ("--deep-gemm", "--deep-gemm=/nonexistent"), ("--filter", "--filter=("),
                                   ("no config is left", "--filter=nothing")):
                done = subprocess.run([sys.executable, os.path.join(peers, "in_turns.py"), *options, names.name],
                                      capture_output=True, text=True, check=False, timeout=120)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertRegex(done.stderr, rf"\Ain_turns: [^\n]*{word}[^\n]*\n\Z")


if __name__ == "__main__":
    unittest.main()
