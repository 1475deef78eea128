# SPDX-License-Identifier: MIT
"""Reads AMD GPU code objects: ELF, the metadata note, kernel descriptors and the disassembly.

Only the standard library is used; the disassembly comes from LLVM's llvm-objdump. Formats: the LLVM documents
"User Guide for AMDGPU Backend" (code object v5, kernel descriptor) and "Clang Offload Bundler".
"""

import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass, field

EM_AMDGPU = 224
SHT_DYNSYM = 11
PT_LOAD, PT_NOTE = 1, 4
NT_AMDGPU_METADATA = 32
BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


class CodeObjectError(Exception):
    """The file is no readable AMD GPU code object, or a tool to read it is missing."""


@dataclass
class Instruction:
    address: int
    mnemonic: str
    operands: str
    size: int  # bytes


@dataclass
class Kernel:
    name: str  # mangled
    symbol: str  # of the kernel descriptor, `<name>.kd`
    metadata: dict  # the kernel's map of the note, keys with their leading dot
    allocated_registers: int  # VGPR + AGPR per lane as the descriptor asks for them, a multiple of 8
    address: int
    code_bytes: int
    instructions: list = field(default_factory=list)  # filled by disassemble()

    @property
    def agprs(self):
        return self.metadata.get(".agpr_count", 0)

    @property
    def vgprs(self):
        # .vgpr_count is the total; with AGPRs in use it is align4(VGPR) + AGPR.
        return self.metadata[".vgpr_count"] - self.agprs


@dataclass
class CodeObject:
    path: str
    arch: str  # "gfx950"
    image: bytes
    kernels: list
    compiler: str  # "Debian clang version 22.1.8 (1~deb12u1)", empty where the section was stripped


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


class Elf:
    """The parts of an ELF64 file that a code object needs."""

    def __init__(self, image, path):
        self.image = image
        self.path = path
        if image[:4] != b"\x7fELF" or len(image) < 64 or image[4] != 2 or image[5] != 1:
            raise CodeObjectError(f"{path}: not a little-endian ELF64 file")
        machine = struct.unpack_from("<H", image, 18)[0]
        if machine != EM_AMDGPU:
            raise CodeObjectError(f"{path}: ELF machine {machine}, an AMD GPU code object has {EM_AMDGPU}")
        phoff, shoff = struct.unpack_from("<QQ", image, 32)
        phentsize, phnum, shentsize, shnum = struct.unpack_from("<HHHH", image, 54)
        # type, flags, offset, vaddr, paddr, filesz, memsz, align
        self.segments = [struct.unpack_from("<IIQQQQQQ", image, phoff + i * phentsize) for i in range(phnum)]
        # name, type, flags, addr, offset, size, link, info, addralign, entsize
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", image, shoff + i * shentsize) for i in range(shnum)]

    def at_address(self, address, size):
        for kind, _, offset, vaddr, _, filesz, _, _ in self.segments:
            if kind == PT_LOAD and vaddr <= address and address + size <= vaddr + filesz:
                return self.image[offset + address - vaddr : offset + address - vaddr + size]
        raise CodeObjectError(f"{self.path}: address 0x{address:x} is in no loaded segment")

    def section(self, wanted):
        """The bytes of a section, empty if there is none of that name."""
        names = self.sections[struct.unpack_from("<H", self.image, 62)[0]][4] if self.sections else 0
        for name, _, _, _, offset, size, *_ in self.sections:
            if self.image[names + name : self.image.index(b"\0", names + name)].decode() == wanted:
                return self.image[offset : offset + size]
        return b""

    def symbols(self):
        """{name: (address, size)} of the dynamic symbols."""
        found = {}
        for _, kind, _, _, offset, size, link, _, _, entsize in self.sections:
            if kind != SHT_DYNSYM:
                continue
            names = self.sections[link][4]
            for at in range(offset, offset + size, entsize):
                name, _, _, _, value, length = struct.unpack_from("<IBBHQQ", self.image, at)
                end = self.image.index(b"\0", names + name)
                found[self.image[names + name : end].decode()] = (value, length)
        return found

    def metadata(self):
        for kind, _, offset, _, _, filesz, _, _ in self.segments:
            at = offset
            while kind == PT_NOTE and at < offset + filesz:
                namesz, descsz, note = struct.unpack_from("<III", self.image, at)
                name_end = at + 12 + (namesz + 3) // 4 * 4
                if note == NT_AMDGPU_METADATA and self.image[at + 12 : at + 12 + namesz].rstrip(b"\0") == b"AMDGPU":
                    return unpack_msgpack(self.image[name_end : name_end + descsz])[0]
                at = name_end + (descsz + 3) // 4 * 4
        raise CodeObjectError(f"{self.path}: no AMDGPU metadata note")


def read_image(image, path):
    elf = Elf(image, path)
    metadata = elf.metadata()
    symbols = elf.symbols()
    arch = metadata["amdhsa.target"].split("--")[-1].split(":")[0]
    kernels = []
    for entry in metadata.get("amdhsa.kernels", []):
        symbol = entry[".symbol"]
        if symbol not in symbols:
            raise CodeObjectError(f"{path}: the metadata names {symbol}, which is no symbol")
        address = symbols[symbol][0]
        descriptor = elf.at_address(address, 64)
        code = address + struct.unpack_from("<q", descriptor, 16)[0]
        rsrc1 = struct.unpack_from("<I", descriptor, 48)[0]
        name = entry[".name"]
        kernels.append(
            Kernel(
                name=name,
                symbol=symbol,
                metadata=entry,
                allocated_registers=((rsrc1 & 0x3F) + 1) * 8,
                address=code,
                code_bytes=symbols[name][1],
            )
        )
    tools = [tool.decode() for tool in elf.section(".comment").split(b"\0") if b"clang" in tool]
    return CodeObject(path=str(path), arch=arch, image=image, kernels=kernels, compiler=tools[0] if tools else "")


def read(path):
    """The code objects of a file: one for a raw ELF, one per GPU architecture for an uncompressed offload bundle."""
    image = pathlib.Path(path).read_bytes()
    if image[:4] == b"CCOB":
        raise CodeObjectError(f"{path}: compressed offload bundle; build with --no-offload-compress")
    if not image.startswith(BUNDLE_MAGIC):
        return [read_image(image, path)]
    objects = []
    count = struct.unpack_from("<Q", image, len(BUNDLE_MAGIC))[0]
    at = len(BUNDLE_MAGIC) + 8
    for _ in range(count):
        offset, size, id_size = struct.unpack_from("<QQQ", image, at)
        target = image[at + 24 : at + 24 + id_size].decode()
        at += 24 + id_size
        if size and "amdgcn" in target:
            objects.append(read_image(image[offset : offset + size], path))
    return objects


def find_objdump():
    """llvm-objdump that knows gfx950: LLVM 20 or later, Debian's names first, then ROCm's own."""
    names = [f"llvm-objdump-{v}" for v in range(25, 19, -1)] + ["/opt/rocm/llvm/bin/llvm-objdump", "llvm-objdump"]
    for name in names:
        if path := shutil.which(name):
            return path
    raise CodeObjectError("llvm-objdump not found (package llvm-22, or ROCm)")


LINE = re.compile(r"^\t(\S+)\s*(.*?)\s*// ([0-9A-F]+): ((?:[0-9A-F]{8} ?)+)")


def disassemble(code_object, objdump=None):
    """Fills `instructions` of every kernel of the code object."""
    with tempfile.NamedTemporaryFile(suffix=".co") as raw:
        raw.write(code_object.image)
        raw.flush()
        command = [objdump or find_objdump(), "-d", f"--mcpu={code_object.arch}", raw.name]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CodeObjectError(f"{code_object.path}: {' '.join(command[:3])}: {done.stderr.strip()}")
    everything = []
    for line in done.stdout.splitlines():
        if match := LINE.match(line):
            mnemonic, operands, address, words = match.groups()
            everything.append(Instruction(int(address, 16), mnemonic, operands, 4 * len(words.split())))
    for kernel in code_object.kernels:
        end = kernel.address + kernel.code_bytes
        kernel.instructions = [i for i in everything if kernel.address <= i.address < end]
        if sum(i.size for i in kernel.instructions) != kernel.code_bytes:
            raise CodeObjectError(
                f"{code_object.path}: {kernel.name}: the disassembly does not cover the kernel's code"
            )
