# SPDX-License-Identifier: MIT
"""Samples of several calls in turns, as bench/harness/sampler.hpp takes them: what the chip does meanwhile happens to all of
them. Only what is handed `torch` needs PyTorch."""
import math
import statistics
import sys
import time
from dataclasses import dataclass

import common

STATES = ("as_is", "rested", "sustained")
REST_SECONDS, PAUSE_SECONDS, LOAD_SECONDS = 0.3, 0.006, 1.0  # bench/harness/chip_state.hpp
SENSOR_SECONDS = 0.03  # from one reading to the next
FLUSHES = ("read", "write")
BURST = 8  # calls of a side in a row while the chip is brought under load


def add_options(parser, peers, default, max_seconds):
    """What the scripts that sample in turns ask for; checked() looks at the answers."""
    parser.add_argument("--filter", default="", help="regular expression searched in the config")
    parser.add_argument("--peers", default=default, help=f"comma list of {', '.join(peers)} (default: {default})")
    parser.add_argument("--state", choices=(*STATES, "both"), default="as_is", help="of the chip; both: rested, then sustained")
    parser.add_argument("--flush", choices=FLUSHES, default="read", help="what displaces the caches before a sample")
    parser.add_argument("--max-seconds", type=float, default=max_seconds, help=f"time cap of a side's samples (default: {max_seconds})")


def checked(tool, options, peers):
    """As common.checked, with the time of samples in turns, which is above 0."""
    if not 0 < options.max_seconds <= 3600:
        common.fail(tool, f"--max-seconds: {options.max_seconds} is not above 0 and at most 3600")
    return common.checked(tool, options, peers)


def states_of(state):
    return ("rested", "sustained") if state == "both" else (state,)


def asked(tool, found):
    """Yields (name, config, tell) of each config that is not left out; tell(side, what) writes a line about it to stderr."""
    for key, config in found.items():
        def tell(side, what, key=key):
            print(f"{tool}: {key}: {side}: {what}", file=sys.stderr)

        if config.left_out:
            tell("all", f"left out: {config.left_out}")
        else:
            yield key, config, tell


def samplers(torch, options):
    """{state: Turns} of the states that the options ask for."""
    return {state: Turns(torch, options.max_seconds, state, options.flush) for state in states_of(options.state)}


@dataclass
class Timing:
    samples: list  # microseconds
    sm_mhz: float = math.nan  # means while the side's samples ran; NaN where the driver does not tell
    power_w: float = math.nan

    def us(self):
        return statistics.median(self.samples)


class Turns:
    """flush: what displaces the caches before each sample. `read` leaves nothing behind; `write` leaves dirty lines, whose way to
    memory the next kernel pays for."""

    def __init__(self, torch, max_seconds, state="as_is", flush="read"):
        self.torch, self.max_seconds, self.state = torch, max_seconds, state
        size = max(512 << 20, 2 * torch.cuda.get_device_properties(0).L2_cache_size)
        self.buffer = torch.randint(-2 ** 31, 2 ** 31 - 1, (size // 4,), dtype=torch.int32, device="cuda")
        self.displace = self.buffer.amax if flush == "read" else self.buffer.zero_
        self.flush_seconds = self.seconds_of(self.displace, done=True)

    def seconds_of(self, call, done=False, calls=10):
        """Of a call on the host, or with `done` on the device."""
        call()
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if done:
            self.torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / calls
        self.torch.cuda.synchronize()
        return seconds

    def read_sensors(self):
        """(SM clock in MHz, power in W) by PyTorch, which asks NVML where its Python package is installed."""
        try:
            return float(self.torch.cuda.clock_rate()), self.torch.cuda.power_draw() * 1e-3
        except Exception:  # whatever is missing: package, driver, permission
            return math.nan, math.nan

    def bring_to_state(self, calls):
        self.torch.cuda.synchronize()
        if self.state == "rested":
            time.sleep(REST_SECONDS)
        start = time.perf_counter()
        while self.state == "sustained" and time.perf_counter() - start < LOAD_SECONDS:
            for call in calls:
                for _ in range(BURST):
                    call()
            self.torch.cuda.synchronize()

    def sample(self, sides):
        """{name: Timing} of {name: call}: a sample of each a round, and each round another begins. Ends when all are quiet, or
        when max_seconds are over, once for each side."""
        names, calls = list(sides), list(sides.values())
        # Python is slow to queue calls: the flush is repeated until it covers that.
        flushes = [1 + int(1.5 * self.seconds_of(call) / self.flush_seconds) for call in calls]
        event = self.torch.cuda.Event
        begin, end = ([event(enable_timing=True) for _ in calls] for _ in range(2))
        samples, readings = [[] for _ in calls], [[] for _ in calls]
        self.bring_to_state(calls)
        start, last_reading, rounds = time.perf_counter(), 0.0, 0
        while not all(common.is_enough(of_side, (time.perf_counter() - start) / len(calls), self.max_seconds)
                      for of_side in samples):
            if self.state == "rested":
                time.sleep(PAUSE_SECONDS)
            reads = time.perf_counter() - last_reading >= SENSOR_SECONDS
            for i in range(len(calls)):
                at = (rounds + i) % len(calls)
                for _ in range(flushes[at]):
                    self.displace()
                begin[at].record()
                calls[at]()
                end[at].record()
                if reads:
                    readings[at].append(self.read_sensors())
                    end[at].synchronize()
            if reads:
                last_reading = time.perf_counter()
            self.torch.cuda.synchronize()
            for of_side, first, last in zip(samples, begin, end):
                of_side.append(1e3 * first.elapsed_time(last))
            rounds += 1
        return {name: Timing(of_side, *(statistics.fmean(values) for values in zip(*read)))
                for name, of_side, read in zip(names, samples, readings)}
