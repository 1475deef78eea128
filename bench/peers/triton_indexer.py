# SPDX-License-Identifier: MIT
"""Logits of an indexer as a Triton kernel: products of a few queries' heads with a tile of keys, summed over heads before
anything is written."""
import torch
import triton
import triton.language as tl

import indexer_configs


def tilings(*shapes):
    return [triton.Config({"QUERIES": queries, "KEYS": keys, "TILES": tiles}, num_warps=warps, num_stages=stages)
            for queries, keys, tiles, warps, stages in shapes]


@triton.jit
def kernel(q, weights, keys, scales, tables, ends, logits, columns, queries, table_columns, page_bytes, PAGED: tl.constexpr,
           HEADS: tl.constexpr, SIZE: tl.constexpr, PAGE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
           TILES: tl.constexpr):
    groups = tl.cdiv(queries, QUERIES)
    sequence, first = tl.program_id(0) // groups, tl.program_id(0) % groups * QUERIES
    query = first + tl.arange(0, QUERIES)
    head = first * HEADS + tl.arange(0, QUERIES * HEADS)
    there = head < queries * HEADS
    head = sequence.to(tl.int64) * queries * HEADS + head
    dimension = tl.arange(0, SIZE)
    a = tl.load(q + head[:, None] * SIZE + dimension[None, :], mask=there[:, None], other=0.0)
    w = tl.load(weights + head, mask=there, other=0.0)
    if PAGED:
        end = tl.load(ends + sequence) - queries + query + 1
    else:
        end = tl.load(ends + query, mask=query < queries, other=0)
    last = tl.max(tl.where(query < queries, end, 0))
    row = (sequence.to(tl.int64) * queries + query) * columns
    tile = tl.program_id(1) * TILES
    behind, beyond = tile + TILES, tl.maximum(tile, tl.minimum(tile + TILES, tl.cdiv(last, KEYS)))
    for i in range(tile, beyond):  # those of which some query sees a key; without a branch Triton loads ahead
        key = i * KEYS + tl.arange(0, KEYS)
        seen = key < last
        if PAGED:
            page = tl.load(tables + sequence * table_columns + key // PAGE, mask=seen, other=0).to(tl.int64)
            at, scale_at = page * page_bytes + key % PAGE * SIZE, page * (page_bytes // 4) + key % PAGE
        else:
            at, scale_at = key.to(tl.int64) * SIZE, key
        b = tl.load(keys + at[:, None] + dimension[None, :], mask=seen[:, None], other=0.0)
        scale = tl.load(scales + scale_at, mask=seen, other=0.0)
        products = tl.maximum(tl.dot(a, tl.trans(b)), 0.0) * w[:, None]
        sums = tl.sum(tl.reshape(products, (QUERIES, HEADS, KEYS)), 1) * scale[None, :]
        result = tl.where(key[None, :] < end[:, None], sums, float("-inf"))
        tl.store(logits + row[:, None] + key[None, :], result, mask=(query < queries)[:, None] & (key < columns)[None, :])
    for i in range(beyond, behind):
        key = i * KEYS + tl.arange(0, KEYS)
        tl.store(logits + row[:, None] + key[None, :], tl.full((QUERIES, KEYS), float("-inf"), tl.float32),
                 mask=(query < queries)[:, None] & (key < columns)[None, :])


tune_by = ["columns", "queries", "table_columns", "PAGED"]
of_one = triton.autotune(tilings((1, 64, 2, 4, 3), (1, 128, 2, 4, 3), (1, 64, 16, 4, 4), (1, 128, 16, 4, 4), (1, 128, 32, 8, 3)),
                         key=tune_by)(kernel)
of_more = triton.autotune(tilings((2, 64, 16, 4, 3), (2, 128, 4, 8, 3), (2, 128, 16, 8, 3), (4, 64, 16, 8, 3), (4, 128, 16, 8, 3)),
                          key=tune_by)(kernel)


def logits_of(config, q, weights, keys, scales, tables, ends):
    """q [queries, heads, size] and keys in fp8, [pages, PAGE, size] with gaps or [columns, size]; f32 [queries, columns]."""
    out = torch.empty(config.all_queries(), config.columns, dtype=torch.float32, device=q.device)
    paged, tuned = config.kind == "paged", of_one if config.queries == 1 else of_more
    sequences = config.rows if paged else 1

    def grid(tiling):
        return (sequences * triton.cdiv(config.queries, tiling["QUERIES"]),
                triton.cdiv(config.columns, tiling["KEYS"] * tiling["TILES"]))

    tuned[grid](q, weights, keys, scales, tables, ends, out, config.columns, config.queries,
                      tables.shape[-1], keys.stride(0), PAGED=paged, HEADS=config.heads, SIZE=indexer_configs.HEAD_SIZE,
                      PAGE=indexer_configs.PAGE)
    return out
