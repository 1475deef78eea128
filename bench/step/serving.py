#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Serves requests with the engine of docs/examples/engine on Llama 3 8B's shapes and random weights, beside what bench_step says of the steps
that it takes at least; CSV on stdout. Prompts differ from their first token on, all requests arrive at once, and every request runs to its last token.

  serving.py --requests=256 --input=512 --output=256 engine/engine build/sm90/bench/bench_step

seconds, tokens_per_s: from the first request to the last token. expected_s: the prompts' tokens in prefill steps of --most-tokens, and output - 1
decode steps of all requests at their mean length. first_token_ms: of one request alone, the median of several. prefill_ms: that step."""
import argparse
import csv
import json
import pathlib
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

CONFIG = dict(model_type="llama", vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
              num_key_value_heads=8, head_dim=128, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=500000.0, eos_token_id=0)
PAGE = 64
COLUMNS = ("name weights requests input output most_tokens seconds tokens_per_s expected_s share_pct first_token_ms prefill_ms first_token_ratio "
           "schema_version").split()


class Engine:
    """The engine's process: requests go in, and a thread puts its events with their times into a queue."""

    def __init__(self, program, folder, options, pages, more):
        command = [program, folder, "--random-weights", "--no-reuse", f"--weights={options.weights}", f"--pages={pages}", f"--page-tokens={PAGE}",
                   f"--most-tokens={options.most_tokens}", f"--most-sequences={options.requests}", *more]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1 << 20)
        self.events = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.events.put((time.perf_counter(), line))
        self.events.put((time.perf_counter(), None))

    def send(self, requests):
        self.process.stdin.write("".join(json.dumps(r) + "\n" for r in requests))
        self.process.stdin.flush()

    def event(self):
        at, line = self.events.get(timeout=300)
        if line is None:
            raise SystemExit("serving.py: the engine ended")
        event = json.loads(line)
        if "error" in event:
            raise SystemExit(f"serving.py: {event['error']}")
        return at, event

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def request(number, tokens, most):
    draw = random.Random(number)
    return {"id": str(number), "prompt": [draw.randrange(1, CONFIG["vocab_size"]) for _ in range(tokens)], "max_tokens": most, "ignore_eos": True}


def first_token(engine, options, count=7):
    """The median time from a request of one token to its answer, without the first two, which make plans."""
    times = []
    for i in range(count):
        text = [request(10 ** 6 + i, options.input, 1)]
        begin = time.perf_counter()
        engine.send(text)
        times.append(engine.event()[0] - begin)
    return statistics.median(times[2:])


def serve(engine, options):
    requests = [request(i, options.input, options.output) for i in range(options.requests)]
    begin, tokens, left = time.perf_counter(), 0, options.requests
    engine.send(requests)
    while left:
        end, event = engine.event()
        tokens += len(event["tokens"])
        left -= bool(event.get("finish_reason"))
    if tokens != options.requests * options.output:
        raise SystemExit(f"serving.py: {tokens} tokens came, not {options.requests * options.output}")
    return end - begin, tokens


def step_us(options, phase, batch, context):
    command = [options.bench_step, "--benchmark_format=csv", "--no-parts", f"--phase={phase}", f"--batch={batch}", f"--context={context}",
               f"--weights={options.weights}", "--max-seconds=0.1"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    rows = list(csv.DictReader(answer.stdout.splitlines()))
    if answer.returncode or len(rows) != 1 or rows[0]["ok"] != "1":
        raise SystemExit("serving.py: " + " ".join(command) + ": no step was measured")
    return float(rows[0]["us"])


def main():
    parser = argparse.ArgumentParser(prog="serving.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("bench_step")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--input", type=int, default=512)
    parser.add_argument("--output", type=int, default=256)
    parser.add_argument("--most-tokens", type=int, default=8192)
    parser.add_argument("--weights", default="bf16", choices=("bf16", "fp8", "int4"))
    parser.add_argument("--option", action="append", default=[], help="one more option of the engine, such as --option=--fp8-cache")
    options = parser.parse_args()
    at_once = max(1, options.most_tokens // options.input)
    prefill_us = step_us(options, "prefill", at_once, options.input)
    alone_us = step_us(options, "prefill", 1, options.input)
    decode_us = step_us(options, "decode", options.requests, options.input + options.output // 2)
    expected = (options.requests / at_once * prefill_us + (options.output - 1) * decode_us) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        pages = options.requests * -(-(options.input + options.output) // PAGE) + 8
        engine = Engine(options.engine, folder, options, pages, options.option)
        first = first_token(engine, options)
        seconds, tokens = serve(engine, options)
        engine.close()
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    writer.writeheader()
    writer.writerow(dict(zip(COLUMNS, [f"llama3-8b/serving/r{options.requests}/i{options.input}/o{options.output}", options.weights, options.requests,
                                       options.input, options.output, options.most_tokens, f"{seconds:.4g}", f"{tokens / seconds:.5g}", f"{expected:.4g}",
                                       f"{expected / seconds * 100:.3g}", f"{first * 1e3:.4g}", f"{alone_us / 1e3:.4g}", f"{first * 1e6 / alone_us:.3g}", 2])))


if __name__ == "__main__":
    main()
