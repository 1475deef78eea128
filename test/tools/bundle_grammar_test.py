#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`tools/bundle check` of bundles that are made here, whole and then wrong in every value of their grammar.

usage: bundle_grammar_test.py TOOLS_DIR [SEED]

A bundle is accepted, or one line says in words what is wrong with it; what is wrong with a value is never accepted.
"""

import contextlib
import copy
import importlib.machinery
import importlib.util
import io
import json
import math
import pathlib
import random
import shutil
import struct
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
TOOLS = pathlib.Path(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
loader = importlib.machinery.SourceFileLoader("bundle", str(TOOLS / "bundle"))
bundle = importlib.util.module_from_spec(importlib.util.spec_from_loader("bundle", loader))
loader.exec_module(bundle)
WRONG = [None, True, -1, 1.5, 2**31, 2**63, 2**64, 1e308, "", "x", "..", "a/b", "a\nb", "\ud800", [], [-1], [1.5] * 3, ["x"], {}, {"x": 1},
         [[[]]]]


def packed(value):
    """MessagePack, of what metadata is made of."""
    if isinstance(value, int):
        return b"\xce" + struct.pack(">I", value)
    if isinstance(value, str):
        return b"\xda" + struct.pack(">H", len(value)) + value.encode()
    items = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
    tag = b"\xde" if isinstance(value, dict) else b"\xdc"
    return tag + struct.pack(">H", len(value)) + b"".join(map(packed, items))


def code_object(pointers):
    """An ELF of one kernel with so many pointers: a note, some code behind it, and the table of sections at the end."""
    args = [{".offset": 8 * i, ".size": 8, ".value_kind": "global_buffer"} for i in range(pointers)]
    args.append({".offset": 8 * pointers, ".size": 4, ".value_kind": "hidden_block_count_x"})
    kernel = {".name": "kernel", ".symbol": "kernel.kd", ".group_segment_fixed_size": 1024, ".wavefront_size": 64,
              ".kernarg_segment_size": 8 * pointers + 4, ".max_flat_workgroup_size": 64, ".args": args}
    text = packed({"amdhsa.target": "amdgcn-amd-amdhsa--gfx950", "amdhsa.kernels": [kernel]})
    note = struct.pack("<III", 7, len(text), 32) + b"AMDGPU\0\0" + text + bytes(-len(text) % 4)
    code, at = bytes(256), 64 + 56
    end = at + len(note) + len(code)
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, end, 0, 64, 56, 1, 64, 1, 0)
    program = struct.pack("<IIQQQQQQ", 4, 4, at, at, at, len(note), len(note), 4)
    section = struct.pack("<IIQQQQIIQQ", 0, 1, 6, 0, at + len(note), len(code), 0, 0, 4, 0)
    return header + program + note + code + section


def write(directory, described, files):
    for name, data in files.items():
        (directory / name).write_bytes(data)
    (directory / "bundle.json").write_text(json.dumps(described))


def launch(buffers):
    pointers = [{"offset": 8 * i, "file": b["file"], "file_offset": 0, "bytes": b["bytes"], "direction": b["direction"]}
                for i, b in enumerate(buffers)]
    return {"name": "launch0", "code_object": "launch0.co", "kernel": "kernel", "symbol": "kernel.kd",
            "grid_blocks": [2, 1, 1], "block": [64, 1, 1], "dynamic_lds_bytes": 0, "static_lds_bytes": 1024,
            "kernarg_bytes": 8 * len(buffers) + 4, "kernarg_hex": "00" * 8 * len(buffers) + "02000000", "pointers": pointers}


def described(schema, problem, buffers, outputs):
    return {"schema": schema, "arch": "gfx950", "config": "a/config", "policy": "a.policy", "description": "words",
            "problem": problem, "launches": [launch(buffers)], "buffers": buffers, "outputs": outputs}


def any_op():
    """Schema 2: doubles 64 floats."""
    values = [1.0 + i for i in range(64)]
    x, out = struct.pack("<64f", *values), struct.pack("<64f", *(2 * v for v in values))
    buffers = [{"file": "x.bin", "bytes": 256, "direction": "in"}, {"file": "out.bin", "bytes": 256, "direction": "inout"}]
    outputs = [{"file": "out.bin", "expected": "out.expected.bin", "dtype": "f32", "elements": 64, "rtol": 1e-5, "atol": 1e-5}]
    files = {"x.bin": x, "out.bin": b"\xff" * 256, "out.expected.bin": out, "launch0.co": code_object(2)}
    return described("tilewave-bundle/2", {"kind": "double"}, buffers, outputs), files


def attention():
    """Schema 1: two sequences of one token, so that out is V and lse is the score."""
    heads, kv_heads, d, block = 2, 1, 16, 8
    ones = 0x3F80  # of bf16
    q = struct.pack(f"<{2 * heads * d}H", *[ones] * (2 * heads * d))
    pages = 2
    cache = struct.pack(f"<{pages * block * d}H", *[ones] * (pages * block * d))
    lse = 0.25 * d
    buffers = [("q.bin", q), ("k.bin", cache), ("v.bin", cache), ("block_table.bin", struct.pack("<2i", 0, 1)),
               ("context_lengths.bin", struct.pack("<2i", 1, 1))]
    files = dict(buffers)
    listed = [{"file": f, "bytes": len(data), "direction": "in"} for f, data in buffers]
    rows = 2 * heads
    listed += [{"file": "out.bin", "bytes": 2 * rows * d, "direction": "out"}, {"file": "lse.bin", "bytes": 4 * rows, "direction": "out"}]
    outputs = []
    for name, dtype, values, shape in (("out", "bf16", [1.0] * rows * d, [2, heads, d]), ("lse", "f32", [lse] * rows, [2, heads])):
        files[f"{name}.expected.f64.bin"] = struct.pack(f"<{len(values)}d", *values)
        files[f"{name}.expected.f32.bin"] = struct.pack(f"<{len(values)}f", *values)
        strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]
        outputs.append({"file": f"{name}.bin", "expected": f"{name}.expected.f32.bin", "expected_f64": f"{name}.expected.f64.bin",
                        "dtype": dtype, "shape": shape, "strides": strides, "atol": 8e-3, "rtol": 8e-3, "row_rtol": 1e-2})
    problem = {"q_dtype": "bf16", "kv_dtype": "bf16", "out_dtype": "bf16", "quant_mode": "none", "head_size": d, "softmax_scale": 0.25,
               "sliding_window": 0, "soft_cap": 0.0, "split_tokens": 0, "batch": 2, "mtp": 1, "num_q_heads": heads,
               "num_kv_heads": kv_heads, "block_size": block, "table_columns": 1, "num_pages": pages, "num_splits": 1,
               "q_strides": [heads * d, d, 1], "out_strides": [heads * d, d, 1], "k_strides": [block * d, block * d, block * 8, 8, 1],
               "v_strides": [block * d, block * d, d, 1], "scale_strides": [block, block, 1], "table_row_stride": 1}
    files["launch0.co"] = code_object(len(listed))
    return described("tilewave-bundle/1", problem, listed, outputs), files


def nodes(value, path=()):
    """Every place in a tree of JSON."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from nodes(part, path + (key,))


def put(tree, path, value):
    if not path:
        return value
    tree = copy.deepcopy(tree)
    at = tree
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return tree


class Grammar(unittest.TestCase):
    def check(self, directory):
        out, err = io.StringIO(), io.StringIO()
        sys.argv = ["bundle", "check", str(directory)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = bundle.main()
        line = err.getvalue()
        if status == 0:
            self.assertEqual(line, "")
            self.assertTrue(out.getvalue().endswith("; ok\n"))
        else:
            self.assertEqual((status, out.getvalue(), line.count("\n")), (1, "", 1), line)
            self.assertNotRegex(line, r"Error|NoneType|object is not|has no attribute|unhashable")
        return line

    def of(self, tree, files, edit=None):
        with tempfile.TemporaryDirectory() as scratch:
            directory = pathlib.Path(scratch)
            write(directory, tree, files)
            if edit:
                edit(directory)
            return self.check(directory)

    def test_whole_ones_are_whole(self):
        for tree, files in (any_op(), attention()):
            self.assertEqual(self.of(tree, files), "")

    def test_every_value_of_another_type_is_refused(self):
        for tree, files in (any_op(), attention()):
            free = {("problem",), ("problem", "kind")} if tree["schema"].endswith("2") else set()
            with tempfile.TemporaryDirectory() as scratch:
                directory = pathlib.Path(scratch)
                write(directory, tree, files)
                for path in nodes(tree):
                    for wrong in WRONG:
                        wrong_tree = put(tree, path, wrong)
                        (directory / "bundle.json").write_text(json.dumps(wrong_tree))
                        said = self.check(directory)
                        harmless = path in free or (path[-1:] and path[-1] in ("config", "policy", "description", "name")
                                                    and isinstance(wrong, str) and wrong.isprintable() and wrong)
                        likely = {"softmax_scale", "soft_cap", "split_tokens", "num_splits", "sliding_window", "atol", "rtol", "row_rtol",
                                  "q_strides", "k_strides", "v_strides", "scale_strides", "offset"}  # values that are possible, if not this bundle's
                        if not harmless and not likely & set(path) and wrong_tree != tree:
                            self.assertNotEqual(said, "", (path, wrong))

    def test_every_key_is_needed(self):
        for tree, files in (any_op(), attention()):
            for path in nodes(tree):
                if not path or isinstance(path[-1], int) or path[-1] in ("row_rtol", "kind"):
                    continue
                lacking = copy.deepcopy(tree)
                at = lacking
                for key in path[:-1]:
                    at = at[key]
                del at[path[-1]]
                self.assertIn(f"no {path[-1]}", self.of(lacking, files), path)

    def test_values_that_cannot_be(self):
        tree, files = any_op()
        for path, wrong, says in ((("launches", 0, "grid_blocks", 0), 1.5, "grid_blocks[0] is 1.5"),
                                  (("launches", 0, "dynamic_lds_bytes"), -1, "dynamic_lds_bytes is -1"),
                                  (("launches", 0, "dynamic_lds_bytes"), 1 << 20, "bytes of LDS"),
                                  (("outputs", 0, "atol"), 1e308, "atol is 1e+308"),
                                  (("outputs", 0, "atol"), 1e30, "a tolerance of 1e+30, its largest value is 128"),
                                  (("outputs", 0, "rtol"), 1.0, "a relative tolerance of 1"),
                                  (("outputs", 0, "elements"), 32, "32 elements of its 256 bytes are compared"),
                                  (("launches", 0, "pointers", 0, "bytes"), 8, "end 248 before it does")):
            self.assertIn(says, self.of(put(tree, path, wrong), files))
        tree, files = attention()
        for path, wrong, says in ((("problem", "batch"), 0, "batch is 0"), (("problem", "batch"), 1, "the problem has"),
                                  (("problem", "num_pages"), 3, "the problem needs"),
                                  (("problem", "v_strides"), [128, 128, 17, 1], "the problem needs"),
                                  (("outputs", 1, "atol"), 5.0, "its largest value is 4")):
            self.assertIn(says, self.of(put(tree, path, wrong), files))
        for file, data, says in (("context_lengths.bin", struct.pack("<2i", -1, 1), "-1 tokens"),
                                 ("context_lengths.bin", struct.pack("<2i", 9, 1), "9 tokens, the table has 8"),
                                 ("block_table.bin", struct.pack("<2i", -1, 1), "page -1 of 2")):
            self.assertIn(says, self.of(tree, files | {file: data}))

    def test_text_that_is_no_json(self):
        tree, files = any_op()
        text = json.dumps(tree)
        for data, says in ((text.encode("utf-16"), "UTF-16"), (b"\xef\xbb\xbf" + text.encode(), "byte order mark"),
                           (text.encode() + b"\xff", "not UTF-8"), (b"[" * 100000, "nests too deep"),
                           (b'{"a": ' * 100000, "nests too deep"), (text.replace("1024", "NaN").encode(), "NaN is no number"),
                           (text.replace('"arch"', '"schema"').encode(), "a key comes twice"), (b"", "not JSON"),
                           (b"1" * 5000, "not JSON"), (b"[]", "not an object"), (b"null", "not an object"), (b"3", "not an object")):
            said = self.of(tree, files, lambda d, data=data: (d / "bundle.json").write_bytes(data))
            self.assertIn(says, said)

    def test_files_that_are_no_files_or_cut(self):
        for tree, files in (any_op(), attention()):
            for name, data in files.items():
                said = self.of(tree, {n: d for n, d in files.items() if n != name})
                self.assertIn(f"{name}: missing", said)
                said = self.of(tree, files, lambda d, n=name: ((d / n).unlink(), (d / n).mkdir()))
                self.assertIn(f"{name}: missing", said)
                for size in (0, 1, len(data) // 2, len(data) - 1):
                    self.assertNotEqual(self.of(tree, files | {name: data[:size]}), "", (name, size))
        said = self.of(tree, files | {"launch0.co": files["launch0.co"][:len(files["launch0.co"]) // 2]})
        self.assertIn("cut short", said)

    def test_code_objects_with_any_byte_changed(self):
        """Accepted or refused in words: what the bytes are is not always seen."""
        tree, files = any_op()
        draw = random.Random(SEED)
        image = files["launch0.co"]
        with tempfile.TemporaryDirectory() as scratch:
            directory = pathlib.Path(scratch)
            write(directory, tree, files)
            for _ in range(800):
                changed = bytearray(image)
                for _ in range(draw.randint(1, 3)):
                    changed[draw.randrange(len(image))] = draw.choice((0, 1, 0x7F, 0x80, 0xDF, 0xFF, draw.randrange(256)))
                (directory / "launch0.co").write_bytes(changed)
                self.check(directory)

    def test_two_values_changed(self):
        draw = random.Random(SEED)
        for tree, files in (any_op(), attention()):
            places = list(nodes(tree))
            with tempfile.TemporaryDirectory() as scratch:
                directory = pathlib.Path(scratch)
                write(directory, tree, files)
                for _ in range(500):
                    changed = tree
                    for _ in range(2):
                        with contextlib.suppress(KeyError, IndexError, TypeError):  # the first took the place of the second
                            changed = put(changed, draw.choice(places), draw.choice(WRONG + [0, 1, 2, 3, 8, 16, 256]))
                    (directory / "bundle.json").write_text(json.dumps(changed))
                    self.check(directory)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
