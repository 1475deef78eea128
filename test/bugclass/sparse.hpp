// SPDX-License-Identifier: MIT
// Caches with addresses far apart, of which only a few elements are ever touched: in the emulated rooms a terabyte costs
// nothing, on a GPU it must fit.
#pragma once

#include "test/device_memory.hpp"
#include "test/ops/paged_attention/counting.hpp"

namespace tilewave::test {

/// Device bytes written one element at a time.
class SparseTensor {
 public:
  explicit SparseTensor(std::size_t bytes) : buffer_(bytes) {
    if constexpr (!bench::emulated_device) buffer_.fill(0xff);  // the emulated rooms hand out zeros that take no memory
  }
  std::byte* data() const { return static_cast<std::byte*>(buffer_.data()); }
  void write(std::int64_t byte, const void* from, std::size_t bytes) const {
    copy_to_device(data() + byte, from, bytes);
  }
  void read(std::int64_t byte, void* to, std::size_t bytes) const {
    bench::check_hip(hipMemcpy(to, data() + byte, bytes, hipMemcpyDeviceToHost), "copying back");
  }

 private:
  DeviceBuffer buffer_;
};

/// K, V and per-token scales wherever the call's strides and table put them, `k_at` and `v_at` elements behind the start
/// of their tensors. The tokens hold signatures.
struct SparseCaches {
  std::int64_t k_at = 0, v_at = 0;

  /// Bytes of K or V, and of one scale tensor, that the strides and the table span.
  static std::size_t cache_bytes(const Call& call) {
    std::int64_t last = 0;
    each_token(call, [&](int b, int h, int t) {
      last = std::max(
          {last, key(call, b, h, t, call.p.spec.head_size - 1), value(call, b, h, t, call.p.spec.head_size - 1)});
    });
    return align_up<std::size_t>((last + 1) * size_of(call.p.spec.kv), 16);
  }
  static std::size_t scale_bytes(const Call& call) {
    std::int64_t last = 0;
    if (call.p.spec.quant == Scaling::per_token)
      each_token(call, [&](int b, int h, int t) { last = std::max(last, scale(call, b, h, t)); });
    return (last + 1) * sizeof(float);
  }

  /// Points the call at the tensors and writes all its tokens.
  void write(Call& call, const SparseTensor& k, const SparseTensor& v, const SparseTensor& k_scale,
             const SparseTensor& v_scale) const {
    const Signature signature(call);
    const int element = size_of(call.p.spec.kv);
    call.p.k = k.data() + k_at * element;
    call.p.v = v.data() + v_at * element;
    call.p.k_scale = reinterpret_cast<const float*>(k_scale.data());
    call.p.v_scale = reinterpret_cast<const float*>(v_scale.data());
    const float one = 1;
    for (const SparseTensor* tensor : {&k_scale, &v_scale}) tensor->write(0, &one, sizeof(one));  // per_tensor
    each_token(call, [&](int b, int h, int t) {
      for (int d = 0; d < call.p.spec.head_size; ++d) {
        const std::uint16_t k_bits = encode(call.p.spec.kv, signature.k_code(h, t, d));
        const std::uint16_t v_bits = encode(call.p.spec.kv, signature.v_code(b, h, t, d));
        k.write((k_at + key(call, b, h, t, d)) * element, &k_bits, element);
        v.write((v_at + value(call, b, h, t, d)) * element, &v_bits, element);
      }
      if (!signature.scaled) return;
      const float scales[] = {signature.k_scale(h, t), signature.v_scale(h, t)};
      k_scale.write(scale(call, b, h, t) * std::int64_t{sizeof(float)}, &scales[0], sizeof(float));
      v_scale.write(scale(call, b, h, t) * std::int64_t{sizeof(float)}, &scales[1], sizeof(float));
    });
  }

 private:
  template <class F>
  static void each_token(const Call& call, F f) {
    for (int b = 0; b < call.p.batch; ++b)
      for (int h = 0; h < call.p.num_kv_heads; ++h)
        for (int t = 0; t < call.lengths[b]; ++t) f(b, h, t);
  }
  static std::int64_t key(const Call& call, int b, int h, int t, int d) {
    const PagedKeyStrides& s = call.p.k_strides;
    const int x = call.p.spec.unit();
    return call.page(b, t) * s.page + h * s.head + d / x * s.unit + t % call.p.block_size * s.token + d % x;
  }
  static std::int64_t value(const Call& call, int b, int h, int t, int d) {
    const PagedValueStrides& s = call.p.v_strides;
    const int x = call.p.spec.unit(), slot = t % call.p.block_size;
    return call.page(b, t) * s.page + h * s.head + slot / x * s.unit + d * s.dim + slot % x;
  }
  static std::int64_t scale(const Call& call, int b, int h, int t) {
    return call.page(b, t) * call.p.scale_page_stride + h * call.p.scale_head_stride + t % call.p.block_size;
  }
};

/// A call of sequences of 64 tokens in which some query head wants each of them: every address is used and known.
inline Call signature_call(const PagedAttentionEntry& e, int batch, int kv_heads = 1, int block_size = 16) {
  const std::vector<std::int32_t> lengths(batch, 64);
  PagedAttentionCase c = case_for(e, lengths);
  c.block_size = block_size;
  c.num_kv_heads = kv_heads;
  c.num_q_heads = 64 * kv_heads;
  return Call(c, lengths);
}
inline int own_token(int, int head) { return head % 64; }

/// Places the caches as the call's strides and table say, runs it, and returns how many values were wrong.
inline int wrong_signatures(Call& call, const PagedAttentionEntry& e, const SparseCaches& caches = {}) {
  const std::size_t bytes = SparseCaches::cache_bytes(call) + std::max(caches.k_at, caches.v_at) * size_of(e.spec.kv);
  const SparseTensor k(bytes), v(bytes), k_scale(SparseCaches::scale_bytes(call)),
      v_scale(SparseCaches::scale_bytes(call));
  caches.write(call, k, v, k_scale, v_scale);
  Signature::set_q(call, own_token);
  return Signature(call).wrong(call, call.run(e), own_token);
}

}  // namespace tilewave::test
