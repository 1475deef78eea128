// SPDX-License-Identifier: MIT
// Addresses: far, high, strided, at the very end of a tensor, misaligned. Numbers are those of the ranked list of bug
// classes that this library was designed against.
#include "test/bugclass/sparse.hpp"

namespace tilewave::test {
namespace {

constexpr std::int64_t two_to(int n) { return std::int64_t{1} << n; }

void use_pages(Call& call, const std::vector<std::int32_t>& pages) {
  for (int b = 0, i = 0; b < call.p.batch; ++b)
    for (int column = 0; column < call.p.table_columns; ++column)
      call.table[b * call.p.table_row_stride + column] = pages.at(i++);
  call.p.num_pages = *std::max_element(pages.begin(), pages.end()) + 1;
}

TEST_CASE("bugclass 01: page offsets beyond 2^31 elements and 4 GiB do not wrap") {
  if (!has_memory(std::size_t{36} << 30)) return;
  each_small_entry([](const PagedAttentionEntry& e) {
    Call call = signature_call(e, 3);
    REQUIRE(call.p.k_strides.page == 1024);
    call.p.scale_page_stride = 512;
    // Ids either side of 2^31 bytes and elements and of 2^32 of both; aliases of some modulo 2^32 are in use as well.
    use_pages(call, {(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 21) - 1, 1 << 21, (1 << 21) + 1, (1 << 22) - 1,
                     1 << 22, (1 << 22) + 1, 0, 1, 3 << 20});
    CHECK(wrong_signatures(call, e) == 0);
  });
}

TEST_CASE("bugclass 01: head strides beyond 2^31 elements do not wrap") {
  if (!has_memory(std::size_t{36} << 30)) return;
  each_small_entry([](const PagedAttentionEntry& e) {
    Call call = signature_call(e, 1, 2);
    call.p.k_strides.head = two_to(32) + 1024;
    call.p.v_strides.head = two_to(31) + 4096;
    call.p.scale_head_stride = two_to(31) + 64;
    CHECK(wrong_signatures(call, e) == 0);
  });
}

TEST_CASE("bugclass 01: unit, token and dimension strides add up beyond 2^31 elements without wrapping") {
  if (!has_memory(std::size_t{36} << 30)) return;
  each_small_entry([](const PagedAttentionEntry& e) {
    const int x = e.spec.unit();
    Call units = signature_call(e, 1, 1, 64);
    units.p.k_strides = {0, 0, two_to(30), x};
    units.p.v_strides = {0, 0, two_to(30), x};
    CHECK(wrong_signatures(units, e) == 0);
    Call tokens = signature_call(e, 1, 1, 64);
    tokens.p.k_strides = {0, 0, x, two_to(26)};
    tokens.p.v_strides = {0, 0, x, two_to(26)};
    CHECK(takes(e, tokens.p) == !e.policy.bulk());  // whose copies want tokens side by side
    if (takes(e, tokens.p)) CHECK(wrong_signatures(tokens, e) == 0);
  });
}

TEST_CASE("bugclass 01: rows of Q, out and the block table beyond 2^31 elements do not wrap") {
  if (!has_memory(std::size_t{24} << 30)) return;
  each_arch([](const PagedAttentionEntry& e) {
    Call call = signature_call(e, 3);
    call.p.mtp = 1;
    const Signature signature(call);
    signature.set_kv(call);
    Signature::set_q(call, own_token);
    Prepared d = call.prepare(1);
    constexpr std::int64_t stride = two_to(30) + 16;  // row 2 starts at 2^31 elements
    const SparseTensor q(3 * stride * 2), out(3 * stride * 2), table(3 * stride * 4);
    for (int row = 0; row < 3; ++row) {
      q.write(row * stride * 2, &call.q[row * call.p.q_row_stride], call.p.q_row_stride * 2);
      table.write(row * stride * 4, &call.table[row * call.p.table_row_stride], call.p.table_row_stride * 4);
    }
    d.p.q = q.data();
    d.p.out = out.data();
    d.p.block_table = reinterpret_cast<const std::int32_t*>(table.data());
    d.p.q_row_stride = d.p.out_row_stride = d.p.table_row_stride = stride;
    REQUIRE(e.launch(d.p, 1, {}).ok());
    bench::check_hip(hipDeviceSynchronize(), "running the kernels");
    Answer answer{64, 64, std::vector<std::uint16_t>(3 * 64 * 64), from_device<float>(d.lse), true};
    for (int row = 0; row < 3; ++row)
      for (int head = 0; head < 64; ++head) {
        out.read((row * stride + head * call.p.out_head_stride) * 2, &answer.out[(row * 64 + head) * 64], 128);
      }
    CHECK(signature.wrong(call, answer, own_token) == 0);
  });
}

TEST_CASE("bugclass 02: page ids beyond 65,535 are not narrowed") {
  each_small_entry([](const PagedAttentionEntry& e) {
    Call call = signature_call(e, 2);
    use_pages(call, {65535, 65536, 67000, 1464, 0, 32767, 32768, 66999});
    CHECK(wrong_signatures(call, e) == 0);
  });
}

TEST_CASE("bugclass 03: caches may lie across a 4 GiB boundary of the address space") {
  if (!has_memory(std::size_t{9} << 30)) return;
  each_small_entry([](const PagedAttentionEntry& e) {
    Call call = signature_call(e, 1);
    const std::size_t used = SparseCaches::cache_bytes(call), bytes = (std::size_t{1} << 32) + 2 * used;
    const SparseTensor k(bytes), v(bytes), k_scale(SparseCaches::scale_bytes(call)),
        v_scale(SparseCaches::scale_bytes(call));
    // The boundary falls into the middle of the four pages.
    const auto start = [&](const SparseTensor& tensor) {
      const auto address = reinterpret_cast<std::uintptr_t>(tensor.data());
      const std::uintptr_t boundary = align_up<std::uintptr_t>(address + used, std::uintptr_t{1} << 32);
      return static_cast<std::int64_t>(boundary - align_down<std::uintptr_t>(used / 2, 16) - address) /
             size_of(e.spec.kv);
    };
    SparseCaches{start(k), start(v)}.write(call, k, v, k_scale, v_scale);
    for (const void* base : {call.p.k, call.p.v}) {
      const auto address = reinterpret_cast<std::uintptr_t>(base);
      REQUIRE((address >> 32) + 1 == (address + used - 1) >> 32);
    }
    Signature::set_q(call, own_token);
    CHECK(Signature(call).wrong(call, call.run(e), own_token) == 0);
  });
}

TEST_CASE("bugclass 04: K and V of a page side by side, layers inside the page, padded heads") {
  each_small_entry([](const PagedAttentionEntry& e) {
    Call call = signature_call(e, 2, 2);
    constexpr int layers = 5, layer = 3;  // [page, layer, K or V, head]
    const std::int64_t head = call.p.k_strides.head + 3 * e.spec.unit();
    call.p.k_strides.head = call.p.v_strides.head = head;
    call.p.k_strides.page = call.p.v_strides.page = layers * 2 * (2 * head);
    call.p.scale_head_stride = 40;
    call.p.scale_page_stride = 3 * 2 * 40;
    const SparseCaches caches{layer * 2 * (2 * head), layer * 2 * (2 * head) + 2 * head};
    const std::size_t bytes = SparseCaches::cache_bytes(call) + caches.v_at * size_of(e.spec.kv);
    const SparseTensor both(bytes), k_scale(SparseCaches::scale_bytes(call)), v_scale(SparseCaches::scale_bytes(call));
    caches.write(call, both, both, k_scale, v_scale);
    Signature::set_q(call, own_token);
    CHECK(Signature(call).wrong(call, call.run(e), own_token) == 0);
  });
}

TEST_CASE("bugclass 04: K and V strided differently, tokens of K apart, V transposed and padded") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const int x = e.spec.unit();
    Call call = signature_call(e, 2, 2, 32);
    call.p.k_strides = {64 * 2 * 48 * 2, 64 * 48 * 2, 48 * 2 * x, 2 * x};
    call.p.v_strides = {64 * 2 * 64 + 7 * x, 64 * 64, x, 32 + x};
    CHECK(takes(e, call.p) == !e.policy.bulk());
    if (takes(e, call.p)) CHECK(wrong_signatures(call, e) == 0);
  });
}

TEST_CASE("bugclass 04: heads outermost, pages inside") {
  each_small_entry([](const PagedAttentionEntry& e) {
    Call call = signature_call(e, 2, 2);
    const std::int64_t page = call.p.k_strides.head;
    call.p.k_strides.page = call.p.v_strides.page = page;
    call.p.k_strides.head = call.p.v_strides.head = page * call.p.num_pages;
    call.p.scale_page_stride = 16;
    call.p.scale_head_stride = 16 * call.p.num_pages;
    CHECK(wrong_signatures(call, e) == 0);
  });
}

TEST_CASE("bugclass 04: Q and out with the heads outermost") {
  each_small_entry([](const PagedAttentionEntry& e) {
    Call call = signature_call(e, 3);
    call.p.q_row_stride = 72;
    call.p.q_head_stride = 3 * 72;
    call.p.out_row_stride = 64;
    call.p.out_head_stride = 3 * 64 + 8;
    call.q.assign(64 * 3 * 72, 0xffff);
    Signature(call).set_kv(call);
    Signature::set_q(call, own_token);
    CHECK(Signature(call).wrong(call, call.run(e), own_token) == 0);
  });
}

TEST_CASE("bugclass 13: no tensor is read or written beyond its last element") {
  // In the emulated rooms the page behind each tensor is inaccessible; compute-sanitizer sees the same on a GPU.
  each_entry([](const PagedAttentionEntry& e) {
    for (const int batch : {1, 2, 4}) {
      const std::vector<std::int32_t> lengths(batch, 64);
      PagedAttentionCase c = case_for(e, lengths);
      c.num_q_heads = batch == 4 ? 5 : 1;  // fewer rows than any tile has
      c.mtp = batch;
      Call call(c, lengths);
      call.p.table_row_stride = call.p.table_columns;
      call.table.clear();
      for (int page = 0; page < c.num_pages(); ++page)
        call.table.push_back(page);  // the last page is the last one used
      call.fill();
      const Prepared d = call.prepare(2);
      if constexpr (bench::emulated_device) {
        const auto at_guard = [](const DeviceBuffer& b) {
          return (reinterpret_cast<std::uintptr_t>(b.data()) + (b.bytes() + 15) / 16 * 16) % 4096 == 0;
        };
        REQUIRE((at_guard(d.q) && at_guard(d.out) && at_guard(d.lse) && at_guard(d.table) && at_guard(d.lengths) &&
                 at_guard(d.workspace)));
      }
      for (const int splits : {1, 2}) CHECK(call.verify(call.run(e, splits), call.expected()).pass);
    }
  });
}

TEST_CASE("bugclass 28: the block table is not read beyond the columns a length needs") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    const std::vector<std::int32_t> lengths{1,        16,       17, tile,
                                            tile + 1, 2 * tile, 0,  2 * tile + 16};  // the last one fills its row
    for (const std::int32_t stale :
         {-1, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
      PagedAttentionCase c = case_for(e, lengths);
      c.num_q_heads = 2;
      c.mtp = 2;
      Call call(c, lengths);
      REQUIRE(c.table_columns() * 16 == lengths.back());
      const int stride = static_cast<int>(call.p.table_row_stride);
      for (int b = 0; b < c.batch; ++b)
        for (int column = (std::max(0, lengths[b]) + 15) / 16; column < stride; ++column)
          call.table[b * stride + column] = stale;
      call.table.resize(call.table.size() - 1);  // ends with the last column in use, at the guard page
      set_counting(call);
      CAPTURE(stale);
      for (const int splits : {1, 3}) CHECK(wrong_counts(call, call.run(e, splits)) == 0);
    }
  });
}

TEST_CASE("bugclass 32: bases and strides off by 2 to 14 bytes are refused") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{40};
    Call call(case_for(e, lengths), lengths);
    call.fill();
    const int splits = splits_for(e, 2);
    const Prepared d = call.prepare(e, splits);
    const auto off = [](const void* p, int bytes) {
      return const_cast<std::byte*>(static_cast<const std::byte*>(p)) + bytes;
    };
    for (int bytes = 2; bytes < 16; bytes += 2)
      for (int tensor = 0; tensor < (d.p.workspace_bytes > 0 ? 5 : 4); ++tensor) {
        PagedAttentionProblem p = d.p;
        if (tensor == 0) p.q = off(p.q, bytes);
        if (tensor == 1) p.k = off(p.k, bytes);
        if (tensor == 2) p.v = off(p.v, bytes);
        if (tensor == 3) p.out = off(p.out, bytes);
        if (tensor == 4) p.workspace = off(p.workspace, bytes);
        CAPTURE(bytes, tensor);
        CHECK(e.launch(p, splits, {}).code == StatusCode::misaligned);
      }
    const std::vector<std::uint16_t> out = from_device<std::uint16_t>(d.out);
    CHECK(std::all_of(out.begin(), out.end(), [](std::uint16_t bits) { return bits == unwritten_half; }));
  });
}

}  // namespace
}  // namespace tilewave::test
