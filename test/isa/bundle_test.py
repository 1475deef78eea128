#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`tools/bundle check` accepts exported bundles and finds each way of breaking one.

usage: bundle_test.py TOOLS_DIR BUNDLE_DIR...
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS, EVERY = pathlib.Path(sys.argv[1]), [pathlib.Path(d) for d in sys.argv[2:]]
WHOLE = [d for d in EVERY if json.loads((d / "bundle.json").read_text())["schema"] == "tilewave-bundle/2"]  # of any op
BUNDLES = [d for d in EVERY if d not in WHOLE]  # of paged attention


sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("bundle", str(TOOLS / "bundle"))
bundle_tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("bundle", loader))
loader.exec_module(bundle_tool)


def check(directory):
    done = subprocess.run([sys.executable, TOOLS / "bundle", "check", directory], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def check_here(directory):
    """The same without a process of its own, whose start takes half of the time."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["bundle", "check", str(directory)]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = bundle_tool.main()
    return status, out.getvalue(), err.getvalue()


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


class BundleCheck(unittest.TestCase):
    def test_exported_bundles_are_whole(self):
        for bundle in EVERY:
            status, out, err = check(bundle)
            self.assertEqual((status, err), (0, ""))
            self.assertIn("; ok", out)

    def broken(self, says, edit=None, files=None, bundle=BUNDLES[0]):
        """A copy of a bundle, edited as JSON or as files, fails with one line holding `says`."""
        with self.subTest(says), tempfile.TemporaryDirectory() as scratch:
            copy = pathlib.Path(scratch) / "bundle"
            shutil.copytree(bundle, copy)
            if edit:
                described = json.loads((copy / "bundle.json").read_text())
                edit(described)
                (copy / "bundle.json").write_text(json.dumps(described))
            if files:
                files(copy)
            status, out, err = check_here(copy)
            self.assertEqual((status, out, len(err.splitlines())), (1, "", 1), err)
            self.assertIn(says, err)

    def test_description(self):
        self.broken("schema is", lambda b: b.update(schema="other/1"))
        self.broken("no outputs", lambda b: b.pop("outputs"))
        self.broken("no kernarg_hex", lambda b: b["launches"][0].pop("kernarg_hex"))
        self.broken("bundle.json", files=lambda d: (d / "bundle.json").unlink())
        self.broken("Expecting", files=lambda d: (d / "bundle.json").write_text("{"))

    def test_code_objects(self):
        decode = lambda b: b["launches"][0]  # noqa: E731
        self.broken("is not in decode.co", lambda b: decode(b).update(symbol="other.kd"))
        self.broken("is not the name", lambda b: decode(b).update(kernel="other"))
        self.broken("the bundle is for", lambda b: b.update(arch="gfx90a"))
        self.broken("kernarg bytes", lambda b: decode(b).update(kernarg_bytes=8))
        self.broken("kernarg_hex has", lambda b: decode(b).update(kernarg_hex="00" * 8))
        self.broken("static_lds_bytes", lambda b: decode(b).update(static_lds_bytes=1))
        self.broken("blocks of 64 lanes", lambda b: decode(b).update(block=[64, 1, 1]))
        self.broken("grid", lambda b: decode(b).update(grid_blocks=[0, 1, 1]))
        self.broken("not a little-endian ELF64", files=lambda d: (d / "decode.co").write_bytes(b"nothing" * 20))

    def test_pointers(self):
        pointer = lambda b: b["launches"][0]["pointers"][0]  # noqa: E731
        self.broken(
            "outside the kernel's arguments", lambda b: pointer(b).update(offset=b["launches"][0]["kernarg_bytes"])
        )
        self.broken("outside the kernel's arguments", lambda b: pointer(b).update(offset=4))
        self.broken("two pointers", lambda b: pointer(b).update(offset=b["launches"][0]["pointers"][1]["offset"]))
        self.broken(
            "is not zero", lambda b: b["launches"][0].update(kernarg_hex="01" + b["launches"][0]["kernarg_hex"][2:])
        )
        self.broken("which is no buffer", lambda b: pointer(b).update(file="other.bin"))
        self.broken("the pointer says", lambda b: pointer(b).update(direction="out"))
        self.broken("beyond the end", lambda b: pointer(b).update(file_offset=1))

    def test_buffers(self):
        self.broken("missing", files=lambda d: (d / "k.bin").unlink())
        self.broken("bundle.json says", files=lambda d: (d / "k.bin").write_bytes(b"\0"))
        self.broken(
            "no launch points to it",
            lambda b: b["buffers"].append({"file": "more.bin", "bytes": 1, "direction": "scratch"}),
        )
        self.broken("outputs and out buffers differ", lambda b: b["outputs"].pop())

    def test_outputs(self):
        out = lambda b: b["outputs"][0]  # noqa: E731
        self.broken("reaches beyond", lambda b: out(b).update(strides=[1 << 20, 1, 1]))
        self.broken("elements, the shape has", lambda b: out(b).update(shape=[1, 1, 1]))
        self.broken("in f32", files=lambda d: flip(d / "out.expected.f64.bin", 6))
        self.broken("in bf16", files=lambda d: flip(d / "out.expected.bf16.bin", 0))

    def test_values(self):
        """One wrong byte of an input that the first row reads changes what it computes to."""
        self.broken("row 0 head 0", files=lambda d: flip(d / "q.bin", 1))
        self.broken("row 0 head 0", edit=lambda b: b["problem"].update(softmax_scale=1.0))
        self.broken("row 0 head 0", files=lambda d: flip(d / "context_lengths.bin", 0))

    def test_bundles_of_any_op(self):
        for bundle in WHOLE:
            output = lambda b: b["outputs"][0]  # noqa: E731
            file = json.loads((bundle / "bundle.json").read_text())["outputs"][0]["file"]
            expected = pathlib.Path(file).stem + ".expected.bin"
            self.broken("no outputs", lambda b: b.update(outputs=[]), bundle=bundle)
            self.broken("no elements", lambda b: output(b).pop("elements"), bundle=bundle)
            self.broken("elements", lambda b: output(b).update(elements=1 << 40), bundle=bundle)
            self.broken("dtype", lambda b: output(b).update(dtype="f64"), bundle=bundle)
            self.broken("atol is -1", lambda b: output(b).update(atol=-1), bundle=bundle)
            self.broken("missing", files=lambda d, e=expected: (d / e).unlink(), bundle=bundle)
            self.broken("bytes, tensor", files=lambda d, e=expected: (d / e).write_bytes(b"0"), bundle=bundle)
            unchanged = lambda d: [shutil.copy(d / f"{e.name.split('.')[0]}.bin", e)  # noqa: E731
                                   for e in d.glob("*.expected.bin")]
            self.broken("no output is changed", files=unchanged, bundle=bundle)
            self.broken("direction 'out'", lambda b: [x.update(direction="out") for x in b["buffers"]] and
                        [p.update(direction="out") for launch in b["launches"] for p in launch["pointers"]], bundle=bundle)

    def test_sinks(self):
        with_sinks = [bundle for bundle in BUNDLES if (bundle / "sinks.bin").exists()]
        self.assertGreater(len(with_sinks), 0)
        for bundle in with_sinks:
            self.broken("row 0 head 0", files=lambda d: flip(d / "sinks.bin", 2), bundle=bundle)

    def test_scores(self):
        """A cap, slopes, and scales of heads of which the first is not that of the last row."""
        capped = [bundle for bundle in BUNDLES if (bundle / "alibi_slopes.bin").exists()]
        heads = [bundle for bundle in BUNDLES
                 if json.loads((bundle / "bundle.json").read_text())["problem"].get("quant_mode") == "per_head"]
        self.assertGreater(min(len(capped), len(heads)), 0)
        for bundle in capped:
            self.broken("row 0 head 0", lambda b: b["problem"].update(soft_cap=1.0), bundle=bundle)
            self.broken("row 0 head 0", files=lambda d: flip(d / "alibi_slopes.bin", 2), bundle=bundle)
        for bundle in heads:
            self.broken("head 7", files=lambda d: flip(d / "k_scale.bin", 6), bundle=bundle)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
