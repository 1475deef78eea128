# SPDX-License-Identifier: MIT
"""Reads the parts of an AMD GPU code object that tools/bundle needs: its chip, and the metadata note's map of each kernel. `tilewave isa` reads the
code itself.

Format: the LLVM document "User Guide for AMDGPU Backend" (code object v5).
"""

import pathlib
import struct
from dataclasses import dataclass

EM_AMDGPU = 224
PT_NOTE = 4
SHT_NOBITS = 8
NT_AMDGPU_METADATA = 32


class CodeObjectError(Exception):
    """The file is no readable AMD GPU code object."""


@dataclass
class CodeObject:
    arch: str  # "gfx950"
    kernels: dict  # by the symbol of the kernel descriptor, `<name>.kd`: maps whose keys have a leading dot


def unpack_msgpack(data, at=0):
    """Decodes one MessagePack value; returns (value, offset after it)."""
    tag = data[at]
    at += 1

    def fixed(fmt):
        return struct.unpack_from(">" + fmt, data, at)[0], at + struct.calcsize(fmt)

    def text(n, at):
        return data[at : at + n].decode(), at + n

    def array(n, at):
        items = []
        for _ in range(n):
            item, at = unpack_msgpack(data, at)
            items.append(item)
        return items, at

    def table(n, at):
        items, at = array(2 * n, at)
        return dict(zip(items[0::2], items[1::2])), at

    if tag <= 0x7F:
        return tag, at
    if tag >= 0xE0:
        return tag - 0x100, at
    if tag <= 0x8F:
        return table(tag & 0xF, at)
    if tag <= 0x9F:
        return array(tag & 0xF, at)
    if tag <= 0xBF:
        return text(tag & 0x1F, at)
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    numbers = {
        0xCA: "f",
        0xCB: "d",
        0xCC: "B",
        0xCD: "H",
        0xCE: "I",
        0xCF: "Q",
        0xD0: "b",
        0xD1: "h",
        0xD2: "i",
        0xD3: "q",
    }
    if tag in numbers:
        return fixed(numbers[tag])
    sized = {
        0xD9: ("B", text),
        0xDA: ("H", text),
        0xDB: ("I", text),
        0xDC: ("H", array),
        0xDD: ("I", array),
        0xDE: ("H", table),
        0xDF: ("I", table),
    }
    if tag in sized:
        count, read = sized[tag]
        n, at = fixed(count)
        return read(n, at)
    raise CodeObjectError(f"metadata: MessagePack tag 0x{tag:02x} is not used by code objects")


def check_whole(image, path):
    """The file has all that its header, its segments and its sections say."""
    program, sections = struct.unpack_from("<QQ", image, 32)
    program_size, programs, section_size, count = struct.unpack_from("<HHHH", image, 54)

    def expect(end):
        if end > len(image):
            raise CodeObjectError(f"{path}: cut short, it has {len(image)} of {end} bytes")

    expect(max(program + program_size * programs, sections + section_size * count))
    for i in range(programs):
        at, held = struct.unpack_from("<Q16xQ", image, program + i * program_size + 8)
        expect(at + held)
    for i in range(count):
        kind, at, held = struct.unpack_from("<I16xQQ", image, sections + i * section_size + 4)
        expect(0 if kind == SHT_NOBITS else at + held)


def check_kernel(kernel):
    """The keys that `tools/bundle` reads, each of its type."""
    for key in (".name", ".symbol"):
        if not isinstance(kernel[key], str):
            raise TypeError(key)
    numbers = [kernel[f".{key}"] for key in ("group_segment_fixed_size", "kernarg_segment_size", "max_flat_workgroup_size")]
    for arg in kernel[".args"]:
        numbers += [arg[".offset"], arg[".size"]]
        if not isinstance(arg[".value_kind"], str):
            raise TypeError(".value_kind")
    if kernel[".wavefront_size"] not in (32, 64) or not all(type(n) is int and 0 <= n < 2**32 for n in numbers):
        raise TypeError("a number")


def metadata(image, path):
    if image[:4] != b"\x7fELF" or len(image) < 64 or image[4] != 2 or image[5] != 1:
        raise CodeObjectError(f"{path}: not a little-endian ELF64 file")
    machine = struct.unpack_from("<H", image, 18)[0]
    if machine != EM_AMDGPU:
        raise CodeObjectError(f"{path}: ELF machine {machine}, an AMD GPU code object has {EM_AMDGPU}")
    check_whole(image, path)
    segments = struct.unpack_from("<Q", image, 32)[0]
    size, count = struct.unpack_from("<HH", image, 54)
    for i in range(count):
        kind, _, at, _, _, held = struct.unpack_from("<IIQQQQ", image, segments + i * size)
        end = at + held
        while kind == PT_NOTE and at < end:
            namesz, descsz, note = struct.unpack_from("<III", image, at)
            name_end = at + 12 + (namesz + 3) // 4 * 4
            if note == NT_AMDGPU_METADATA and image[at + 12 : at + 12 + namesz].rstrip(b"\0") == b"AMDGPU":
                return unpack_msgpack(image[name_end : name_end + descsz])[0]
            at = name_end + (descsz + 3) // 4 * 4
    raise CodeObjectError(f"{path}: no AMDGPU metadata note")


def read(path):
    image = pathlib.Path(path).read_bytes()
    try:
        note = metadata(image, path)
        arch = note["amdhsa.target"].split("--")[-1].split(":")[0]
        kernels = note.get("amdhsa.kernels", [])
        for kernel in kernels:
            check_kernel(kernel)
        return CodeObject(arch, {kernel[".symbol"]: kernel for kernel in kernels})
    except (struct.error, IndexError, KeyError, TypeError, UnicodeDecodeError, AttributeError, RecursionError):
        raise CodeObjectError(f"{path}: its metadata is damaged") from None
