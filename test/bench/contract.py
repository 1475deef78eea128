# SPDX-License-Identifier: MIT
"""What the CSV contracts of all benchmarks on the emulated device have in common."""
import csv
import io
import json
import math
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MEASURED = """ok err max_abs_err max_rel_err us us_min us_q1 us_q3 us_cold us_hot cv_pct samples gbps tflops bytes_ideal
flops roof_us roof_pct model_us model_clk model_mhz model_error_pct model_bound model_chip state sm_mhz power_w peer peer_us peer_ratio
peer_sm_mhz peer_power_w peer_rel_err floor_us over_floor sustained_us sustained_sm_mhz sustained_power_w sustained_peer_us
sustained_peer_ratio sustained_peer_sm_mhz sustained_peer_power_w sustained_floor_us""".split()
ORIGIN = ["entry", "config_id", "emulated", "schema_version", "policy_columns"]  # tells where a row comes from, but not what it is
GOOGLE = """family_index per_family_instance_index run_name run_type repetitions repetition_index threads iterations real_time cpu_time
time_unit""".split()  # Google Benchmark's own
NOT_A_NUMBER = {"real_time", "cpu_time", "us", "us_min", "us_q1", "us_q3", "us_cold", "us_hot", "cv_pct", "gbps", "tflops", "roof_pct",
                "model_us", "model_clk", "model_mhz", "model_error_pct"} | set(MEASURED[MEASURED.index("state"):]) - {"state", "peer"}
FRACTIONS = NOT_A_NUMBER | {"max_abs_err", "max_rel_err", "roof_us"}
WORDS = {"kind", "arch", "sums", "q_dtype", "kv_dtype", "x_dtype", "weight_dtype", "table_dtype", "pairs", "out_dtype", "quant_mode",
         "scale_mode", "mx_rounding", "k_layout", "v_layout", "inputs", "a_dtype", "b_dtype", "scale", "layout", "weights", "activation", "gating", "out_scale",
         "group_kind", "id_type", "path", "score", "group_score", "weight", "load", "stage", "results", "model_bound",
         "model_chip", "state", "peer"}
ARCHS = ["gfx942", "gfx950", "sm90"]
bench = ""  # path of the benchmark
all_rows = "TILEWAVE_ALL_ENTRIES" in os.environ


def every(n):
    """Every n-th row in the slice, all with the label full."""
    return f"--every={1 if all_rows else n}"


def tool():
    return os.path.basename(bench)


def run(*arguments, **environment):
    return subprocess.run([bench, *arguments], capture_output=True, text=True, timeout=600, check=False,
                          env=os.environ | environment)


def identities(*arguments):
    """The columns that rows consist of, by name: none is run."""
    lines = list(csv.reader(io.StringIO(run("--benchmark_list_tests", "--benchmark_format=csv", *arguments).stdout)))
    return lines[0][1:], {line[0]: tuple(line[1:]) for line in lines[1:]}


def rows_of(done):
    lines = list(csv.reader(io.StringIO(done.stdout)))
    return lines[0], [dict(zip(lines[0], line)) for line in lines[1:]], lines


def columns_of(done):
    """Names and cells of the one row that was written, without Google Benchmark's own."""
    columns, cells = csv.reader(io.StringIO(done.stdout))
    return columns[:columns.index("family_index")], cells


def documented():
    """The names between backticks of the page about columns."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/reference/benchmarking-columns.md")
    with open(page, encoding="utf-8") as file:
        return set(re.findall(r"\w+", " ".join(re.findall("`([^`]+)`", file.read()))))


def lines_of(path):
    with open(path, "rb") as file:
        return file.read().count(b"\n")


class Contract(unittest.TestCase):
    def check_layout(self, done, name, identity):
        """Rows with a name of the pattern, the columns `identity` and the common ones; pairs of a row and its name's match."""
        header, rows, lines = rows_of(done)
        own = ["name"] + identity + MEASURED + ORIGIN
        self.assertEqual(header, own + [column for column in GOOGLE if column not in own])
        self.assertNotIn("DEBUG", done.stderr)
        self.assertEqual(set(header) - documented(), set())
        for line in lines:
            self.assertEqual(len(line), len(header))
        matched = []
        for row in rows:
            match = name.fullmatch(row["name"])
            self.assertTrue(match, row["name"])
            for column in header[1:]:
                if column == "policy_columns":
                    self.assertLess(set(row[column].split()), set(identity))
                    self.assertTrue({"waves_per_simd", "results", "gather_tokens"} & set(row[column].split()), row[column])
                    self.assertFalse({"kind", "arch", "seed"} & set(row[column].split()))
                elif column == "run_name":
                    self.assertEqual(row[column], row["name"])
                elif column in ("run_type", "time_unit"):
                    self.assertEqual(row[column], {"run_type": "iteration", "time_unit": "us"}[column])
                elif column in WORDS or column == "entry":
                    self.assertRegex(row[column], r"\A[a-z][a-z0-9_./]*\Z", column)
                elif column in FRACTIONS:
                    self.assertEqual(math.isnan(float(row[column])), column in NOT_A_NUMBER, column)
                else:
                    self.assertRegex(row[column], r"\A\d+\Z", column)
            self.assertEqual((row["emulated"], row["seed"], row["schema_version"]), ("1", "123", "2"))
            self.assertEqual(int(row["ok"]) + int(row["err"]), 1)
            self.assertEqual(float(row["roof_us"]) > 0, int(row["bytes_ideal"]) > 0)
            matched.append((row, match))
        return matched

    def refuses(self, *arguments, **environment):
        done = run(*arguments, **environment)
        self.assertEqual(done.returncode, 2, (arguments, environment))
        self.assertEqual(done.stdout, "", arguments)
        self.assertRegex(done.stderr, rf"\A{tool()}: [^\n]+\n\Z", arguments)
        return done.stderr

    def check_identities(self, identity, *arguments):
        """No two rows have equal columns, of every architecture and with all policies."""
        for arch in ARCHS:
            counts = []
            for policies in ("selected", "all"):
                columns, rows = identities(f"--arch={arch}", f"--policies={policies}", *arguments)
                self.assertEqual(columns, identity)
                self.assertEqual(len(set(rows.values())), len(rows), (arch, policies))
                counts.append(len(rows))
            self.assertGreaterEqual(counts[1], counts[0])

    def check_ends(self, *arguments):
        """Files that take nothing or not enough, readers that are gone, Ctrl-C, a bad environment. `arguments`: a few rows."""
        def failing(stdout, *more, **options):
            done = subprocess.run([bench, *arguments, *more], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=600,
                                  check=False, **options)
            self.assertEqual(done.returncode, 2, done.stderr)
            return done.stderr

        at_once = re.compile(rf"\A{tool()}: cannot write to [^\n]+\n\Z")
        with open("/dev/full", "w", encoding="utf-8") as full, open(os.devnull, "w", encoding="utf-8") as null:
            for form in ("csv", "json"):
                self.assertRegex(failing(full, f"--benchmark_format={form}"), at_once)
                self.assertRegex(failing(null, "--benchmark_out=/dev/full", f"--benchmark_out_format={form}",
                                         "--benchmark_format=json"), at_once)
            self.assertIn("cannot write to stdout", failing(full))
            self.assertRegex(failing(full, "--benchmark_list_tests"), at_once)
        reader, writer = os.pipe()
        os.close(reader)
        self.assertRegex(failing(writer, "--benchmark_format=csv"), at_once)
        os.close(writer)
        with tempfile.TemporaryDirectory() as scratch:
            path, out = os.path.join(scratch, "rows.csv"), os.path.join(scratch, "rows.json")
            room = len(run("--benchmark_format=csv", *arguments).stdout) - 50  # the last row does not fit
            with open(path, "w", encoding="utf-8") as file:
                complaint = failing(file, "--benchmark_format=csv",
                                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)))
            self.assertIn(f"\n{tool()}: cannot write to stdout\n", complaint)
            self.assertEqual(os.path.getsize(path), room)
            for how, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
                with open(path, "w", encoding="utf-8") as file:
                    process = subprocess.Popen([bench, "--benchmark_format=csv", f"--benchmark_out={out}"], stdout=file,
                                               stderr=subprocess.PIPE, text=True)
                    while process.poll() is None and lines_of(path) < 3:
                        time.sleep(0.01)
                    process.send_signal(how)
                    complaint = process.communicate(timeout=600)[1]
                self.assertEqual(process.returncode, status, complaint)
                with open(path, encoding="utf-8", newline="") as file:
                    text = file.read()
                rows = list(csv.reader(io.StringIO(text)))
                self.assertTrue(text.endswith("\n"))
                self.assertEqual({len(row) for row in rows}, {len(rows[0])})
                with open(out, encoding="utf-8") as file:
                    self.assertEqual([row["name"] for row in json.load(file)["benchmarks"]], [row[0] for row in rows[1:]])
                every = len(run("--benchmark_list_tests").stdout.splitlines())
                self.assertIn(f"{tool()}: interrupted, {len(rows) - 1} of {every} rows are done\n", complaint)
                self.assertLess(len(rows) - 1, every)
        for variable, value in (("THREADS", "many"), ("SCHEDULE", "sideways"), ("SEED", "-1")):
            self.assertIn(f"TILEWAVE_HOST_{variable}", self.refuses(**{f"TILEWAVE_HOST_{variable}": value}))

    def check_progress(self, *arguments):
        """On a terminal, and on nothing else, stderr tells how many rows are done and what is left."""
        terminal, end = pty.openpty()
        done = subprocess.run([bench, "--benchmark_format=csv", *arguments], stdout=subprocess.PIPE, stderr=end, text=True,
                              timeout=600, check=False)
        os.close(end)
        told = b""
        try:
            while part := os.read(terminal, 65536):
                told += part
        except OSError:  # how a terminal ends
            pass
        os.close(terminal)
        names = [row["name"] for row in rows_of(done)[1]]
        self.assertGreater(len(names), 1)
        for i, name in enumerate(names, 1):
            self.assertRegex(told.decode(), rf"\r\[{i}/{len(names)}\] [-\d]+:[-\d]+ left  {re.escape(name[:30])}")
        self.assertRegex(told.decode(), rf"\[{len(names)}/{len(names)}\] \d+:\d\d left")
        self.assertNotIn(" left", run("--benchmark_format=csv", *arguments).stderr)

    def check_shapes(self, *sweep, every=1, by_name=True):
        """Each config of a sweep comes back from a CSV, from JSON and from its name; what is none is refused, and where."""
        listed = run("--benchmark_list_tests", "--benchmark_format=csv", *sweep).stdout
        columns, rows = identities(*sweep)
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "shapes")

            def write(text):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                return f"--shapes={path}"

            self.assertEqual(identities(write(listed)), (columns, rows))
            reader = csv.DictReader(io.StringIO(listed))
            self.assertEqual(identities(write(json.dumps({"benchmarks": list(reader)}))), (columns, rows))
            for name, identity in list(rows.items())[::every] if by_name else []:
                self.assertEqual(identities(f"--config={name}"), (columns, {name: identity}))
            head, first, *_ = listed.splitlines()
            self.assertIn(f"{path}:1: no column is named 'colour'", self.refuses(write(f"{head},colour\n{first},red\n")))
            self.assertIn(f"{path}:2: kind", self.refuses(write(f"kind\nmagic\n")))
            self.assertIn("arch is sm90, this run's is gfx950", self.refuses(write("arch\nsm90\n")))
            self.assertIn("'-1' is not a number", self.refuses(write("seed\n-1\n")))
            self.assertIn("'1e3' is not a number", self.refuses(write("seed\n1e3\n")))
            self.assertIn("is not a number from 0 to", self.refuses(write("seed\n99999999999999999999\n")))
            self.assertIn(f"{path}:3: 1 fields below 2", self.refuses(write("seed,kind\n\n1\n")))
            for text, complaint in (("", "no configs"), (head, "no configs"), ('seed\n"1', "quote"), ("[1]", "not an object"),
                                    ("{", "not JSON"), ("{}", "neither"), ('[{"seed": [1]}]', "neither a number"),
                                    ("seed,seed\n1,1\n", "two columns"), ("\xff\x00\n\x01", "no column")):
                self.assertIn(complaint, self.refuses(write(text)), text)
            self.assertIn(f"{path}:2: two columns are named seed", self.refuses(write("\nseed,seed\n1,1\n")))
            self.assertIn(f"{path}:1: a column has no name", self.refuses(write("seed,\n1,1\n")))
            self.assertIn(f"{path}:3: not JSON", self.refuses(write('[{"seed": 1},\n{"seed":\n x}]\n')))
            for encoding, complaint in (("utf-16", "UTF-16"), ("utf-8-sig", "byte order mark")):
                with open(path, "w", encoding=encoding) as file:
                    file.write(listed)
                self.assertIn(complaint, self.refuses(f"--shapes={path}"))
            self.assertIn("a folder", self.refuses(f"--shapes={scratch}"))
        self.assertIn("cannot read", self.refuses("--shapes=/nonexistent/shapes"))
        for name in ("", "nonsense", first.split(",")[0] + "/bf16/bf16/bf16", "seed=1/seed=2", "seed"):
            self.refuses(f"--config={name}", "--benchmark_list_tests")
        for separator in ",; ":
            self.assertIn("between /", self.refuses(f"--config=seed=1{separator}arch=gfx950"))
        self.refuses("--config=seed=1", "--shapes=x")
        for column in ("us", "waves_per_simd", "config_id"):  # which a file may have
            self.assertIn(f"no column is named '{column}'", self.refuses(f"--config=seed=1/{column}=4"))
        self.refuses("--tp=8")
        for batch in ("1,", ",1", "1,,2"):
            self.assertIn("has an empty item", self.refuses("--model=llama3-8b", f"--batch={batch}"))
        self.refuses("--model=llama9")

    def test_lists_without_a_device(self):
        """Every call of the device fails, as without a GPU: a list needs none, a row says so."""
        for arguments in ([], ["--policies=all", "--benchmark_format=csv"]):
            listed = run("--benchmark_list_tests", *arguments, TILEWAVE_HOST_DEVICES="0")
            self.assertEqual((listed.returncode, listed.stderr), (0, ""))
            self.assertEqual(listed.stdout, run("--benchmark_list_tests", *arguments).stdout)
        self.assertIn("no GPU", self.refuses("--benchmark_format=csv", TILEWAVE_HOST_DEVICES="0"))


def main(usage):
    global bench
    if len(sys.argv) < 2:
        sys.exit(f"usage: {os.path.basename(sys.argv[0])} {usage}")
    bench = sys.argv.pop(1)
    unittest.main()
