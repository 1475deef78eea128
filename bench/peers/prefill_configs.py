# SPDX-License-Identifier: MIT
"""What bench_flash_attention times, read from the names of its rows, so that peers time the same."""
import re
from dataclasses import dataclass

KEY = re.compile(r"prefill/(?P<dtype>\w+)/c(?P<kv_length>\d+)/r\d+/b(?P<batch>\d+)/hq(?P<q_heads>\d+)/hkv(?P<kv_heads>\d+)"
                 r"/q(?P<q_length>\d+)/d(?P<head_size>\d+)/dv(?P<value_size>\d+)/(?P<kv>\w+)\.(?P<quant>\w+)/(?P<out>\w+)"
                 r"/bs(?P<block_size>\d+)/causal(?P<causal>[01])/w(?P<window>\d+)/ragged(?P<ragged>[01])(?P<mixed>/decode\d+)?/lse(?P<lse>[01])")


@dataclass(frozen=True)
class Call:
    batch: int
    q_heads: int
    kv_heads: int
    q_length: int
    kv_length: int
    head_size: int
    block_size: int  # tokens of a page; 0: K and V are contiguous
    window: int  # keys that a query sees, up to its own position; 0: no window
    causal: bool
    fp8: bool

    def pairs(self):
        """Of a query and a key that it sees, of one head."""
        def seen(query):
            end = self.kv_length - self.q_length + query + 1 if self.causal else self.kv_length
            return min(end, self.window) if self.window else end
        return sum(seen(query) for query in range(self.q_length))

    def flops(self):
        return 4 * self.head_size * self.batch * self.q_heads * self.pairs()


@dataclass(frozen=True)
class Config:
    call: Call
    left_out: str = ""  # why the libraries are not asked to do this


def config_of(key):
    match = KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"'{key}' is no config of bench_flash_attention")
    named = match.groupdict()
    numbers = {field: int(named[field]) for field in
               "batch q_heads kv_heads q_length kv_length head_size block_size window".split()}
    call = Call(**numbers, causal=named["causal"] == "1", fp8=named["dtype"] == "fp8")
    types = (named["dtype"], named["kv"], named["quant"], named["out"])
    left_out = ("sequences of unlike length" if named["ragged"] == "1" or named["mixed"] else
                "values of another size than keys" if named["value_size"] != named["head_size"] else
                "types other than bf16, and fp8 with one scale" if types not in (
                    ("bf16", "bf16", "none", "bf16"), ("fp8", "fp8", "per_tensor", "bf16")) else
                "a last page that is not full" if call.block_size and call.kv_length % call.block_size else "")
    return Config(call, left_out)
