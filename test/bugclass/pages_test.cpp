// SPDX-License-Identifier: MIT
// Pages, heads and scales: any page size, any order of pages, any head ratio, each scale where it belongs. Numbers are
// those of the ranked list of bug classes that this library was designed against.
#include "test/ops/paged_attention/counting.hpp"

namespace tilewave::test {
namespace {

float drawn(std::uint64_t tensor, int a, int b, int c, int d) { return drawn_of_row(tensor, a, b, c, d); }

/// Values that belong to the logical token, whatever page holds it; `period` repeats them along the sequence.
void fill_by_token(Call& call, int period = std::numeric_limits<std::int32_t>::max()) {
  call.set_q([](int row, int h, int d) { return drawn('q', row, h, 0, d); });
  call.set_k([&](int b, int h, int t, int d) { return drawn('k', b, h, t % period, d); });
  call.set_v([&](int b, int h, int t, int d) { return drawn('v', b, h, t % period, d); });
  call.set_k_scale([&](int, int h, int t) { return 0.5f + 0.01f * static_cast<float>((7 * (t % period) + h) % 100); });
  call.set_v_scale([&](int, int h, int t) { return 1.5f - 0.01f * static_cast<float>((3 * (t % period) + h) % 100); });
}

TEST_CASE("bugclass 17: per-token scales are those of the token and its kv head, K's not V's") {
  // Codes of K and V are 1 everywhere, so only the scales say which token a row picks and what it gets.
  each_entry([](const PagedAttentionEntry& e) {
    if (e.spec.quant != Scaling::per_token) return;
    const std::vector<std::int32_t> lengths{1, 33, tile_of(e) + 5};
    for (const int block_size : {16, 48}) {
      PagedAttentionCase c = case_for(e, lengths);
      c.block_size = block_size;
      c.num_kv_heads = 3;
      c.num_q_heads = 6;
      Call call(c, lengths);
      const auto target = [&](int b, int h) { return (lengths[b] - 1) * (h + 1) / 3; };
      const auto v_scale = [](int b, int h, int t) { return static_cast<float>(1 + (t * 37 + h * 11 + b * 5) % 251); };
      call.p.softmax_scale = 1;
      call.set_q([](int, int, int) { return 1.0f; });
      call.set_k([](int, int, int, int) { return 1.0f; });
      call.set_k_scale([&](int b, int h, int t) { return t == target(b, h) ? 2.0f : -1.0f; });
      call.set_v([](int, int, int, int) { return 1.0f; });
      call.set_v_scale(v_scale);
      const Answer answer = call.run(e);
      int wrong = 0;
      for (int b = 0; b < c.batch; ++b)
        for (int head = 0; head < 6; ++head) {
          wrong += !(std::abs(answer.lse_at(b, head) - 2.0f * c.head_size) < 1e-3f);
          for (int d = 0; d < c.head_size; ++d)
            wrong += answer.at(b, head, d) != v_scale(b, head / 2, target(b, head / 2));
        }
      CAPTURE(block_size);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("bugclass 17: per-tensor scales are applied once each, K's not V's") {
  each_entry([](const PagedAttentionEntry& e) {
    if (e.spec.quant != Scaling::per_tensor) return;
    const std::vector<std::int32_t> lengths{2, tile_of(e) + 5};
    PagedAttentionCase c = case_for(e, lengths);
    Call call(c, lengths);
    call.p.softmax_scale = 0.5f;
    call.set_q([](int, int, int d) { return d == 0 ? 1.0f : 0.0f; });
    call.set_k([](int, int, int t, int) { return t == 0 ? 1.0f : 0.0f; });
    call.set_k_scale([](int, int, int) { return 3.0f; });
    call.set_v([](int, int, int t, int) { return t == 0 ? 2.0f : 1.0f; });
    call.set_v_scale([](int, int, int) { return 0.25f; });
    for (const int splits : {1, 2}) {
      const Answer answer = call.run(e, splits);
      int wrong = 0;
      for (int b = 0; b < c.batch; ++b)
        for (int head = 0; head < c.num_q_heads; ++head) {
          const double first = std::exp(1.5), sum = first + lengths[b] - 1, wanted = 0.25 * (1 + first / sum);
          wrong += !(std::abs(answer.lse_at(b, head) - std::log(sum)) < 1e-5);
          for (int d = 0; d < c.head_size; ++d)
            wrong += !(std::abs(answer.at(b, head, d) - wanted) <= wanted * bf16_step);
        }
      CAPTURE(splits);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("bugclass 18: all 256 codes of the architecture's fp8 flavour mean what the flavour says") {
  // Sequences of one token: out is V, and lse is one element of K.
  each_small_entry([](const PagedAttentionEntry& e) {
    if (e.spec.quant == Scaling::none) return;
    const std::vector<std::int32_t> lengths(256, 1);
    PagedAttentionCase c = case_for(e, lengths);
    c.num_q_heads = 1;
    Call call(c, lengths);
    call.p.softmax_scale = 1;
    const auto value = [&](int code) { return fp8_to_f32(e.spec.kv, static_cast<std::uint8_t>(code)); };
    call.set_q([](int, int, int d) { return d == 3 ? 1.0f : 0.0f; });
    // NaN codes would make every score NaN, so K has 0 there and V is looked at.
    call.set_k([&](int b, int, int, int d) { return d == 3 && !std::isnan(value(b)) ? value(b) : 0.0f; });
    call.set_v([&](int b, int, int, int d) { return value((b + d) % 256); });
    const Answer answer = call.run(e);
    int wrong = 0, nans = 0;
    for (int b = 0; b < 256; ++b) {
      if (!std::isnan(value(b))) wrong += !(std::abs(answer.lse_at(b, 0) - value(b)) <= std::abs(value(b)) * 1e-6f);
      for (int d = 0; d < 64; ++d) {
        const float wanted = value((b + d) % 256), actual = answer.at(b, 0, d);
        nans += std::isnan(wanted);
        wrong += std::isnan(wanted) ? !std::isnan(actual) : actual != wanted;
      }
    }
    CHECK(wrong == 0);
    CHECK(nans == 64 * (e.spec.kv == DType::fp8_e4m3fn ? 2 : 1));
  });
}

TEST_CASE("bugclass 23: splits are merged by their natural logs") {
  // Halves of very different weight: a merge in another base would weigh them by a power of it.
  each_entry([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    const std::vector<std::int32_t> lengths{2 * tile};
    PagedAttentionCase c = case_for(e, lengths);
    c.num_q_heads = 2;
    Call call(c, lengths);
    call.p.softmax_scale = 1;
    call.set_q([](int, int, int d) { return d == 0 ? 1.0f : 0.0f; });
    call.set_k([&](int, int, int t, int) { return t < tile ? 3.0f : 0.0f; });
    call.set_v([&](int, int, int t, int) { return t < tile ? 1.0f : 8.0f; });
    const double first = std::exp(3.0), wanted = (first + 8) / (first + 1), lse = std::log(tile * (first + 1));
    for (const int splits : {1, 2}) {
      const Answer answer = call.run(e, splits);
      int wrong = 0;
      for (int head = 0; head < 2; ++head) {
        wrong += !(std::abs(answer.lse_at(0, head) - lse) < 1e-5);
        for (int d = 0; d < c.head_size; ++d)
          wrong += !(std::abs(answer.at(0, head, d) - wanted) <= wanted * bf16_step);
      }
      CAPTURE(splits);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("bugclass 23: every split keeps its own weight, however many there are") {
  // Counts around the widths of waves; enough tiles that no split is empty, and logits that differ from tile to tile.
  each_arch([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    const std::vector<std::int32_t> lengths{max_splits * tile, 70 * tile + 5};
    PagedAttentionCase c = case_for(e, lengths);
    c.block_size = 64;
    c.num_q_heads = 3;
    Call call(c, lengths);
    call.p.softmax_scale = 1;
    call.set_q([](int, int head, int d) { return d == 0 ? 1.0f + 0.25f * static_cast<float>(head) : 0.0f; });
    call.set_k([&](int, int, int t, int) { return 0.25f * static_cast<float>(t / tile * 37 % 23); });
    call.set_v(
        [&](int b, int h, int t, int d) { return drawn('v', b, h, t / tile, d) + 0.25f * drawn('w', b, h, t, d); });
    const reference::PagedAttentionResult expected = call.expected();
    for (const int splits : {7, 8, 9, 31, 32, 33, 63, 64, 65, 97, 127, 128}) {
      const bench::Verdict verdict = call.verify(call.run(e, splits), expected);
      INFO("splits " << splits << ": " << verdict.reason);
      CHECK(verdict.pass);
    }
  });
}

TEST_CASE("bugclass 26: the page size does not matter, to the last bit, whether or not it divides the tile") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{15, 49, 130, tile_of(e) + 1, 1030};
    Answer first;
    for (const int block_size : {16, 32, 48, 80, 112, 128, 192, 256, 272, 1024, 2048}) {
      PagedAttentionCase c = case_for(e, lengths);
      c.block_size = block_size;
      c.num_q_heads = 2;
      Call call(c, lengths);
      fill_by_token(call);
      const Answer answer = call.run(e, 2);
      if (first.out.empty()) {
        first = answer;
        CHECK(call.verify(answer, call.expected()).pass);
      }
      CAPTURE(block_size);
      CHECK(same_bits(answer, first));
    }
  });
}

TEST_CASE("bugclass 27: neighbours in a sequence need not be neighbours in memory, and pages may repeat") {
  each_small_entry([](const PagedAttentionEntry& e) {
    constexpr int period = 3 * 16;
    const std::vector<std::int32_t> lengths{100, 2 * tile_of(e) + 7};
    PagedAttentionCase c = case_for(e, lengths);
    c.num_q_heads = 2;
    c.mtp = 2;
    std::vector<Answer> answers;
    for (const int order : {0, 1, 2, 3}) {  // drawn, ascending, descending, three pages over and over
      Call call(c, lengths);
      for (int b = 0; b < c.batch && order > 0; ++b)
        for (int column = 0; column < c.table_columns(); ++column) {
          const int page = b * c.table_columns() + column;
          std::int32_t& id = call.table[b * call.p.table_row_stride + column];
          id = order == 1 ? page : order == 2 ? static_cast<int>(c.num_pages()) - 1 - page : b * 3 + column % 3;
        }
      fill_by_token(call, period);
      answers.push_back(call.run(e, 2));
    }
    for (const Answer& answer : answers) CHECK(same_bits(answer, answers.front()));
  });
}

TEST_CASE("bugclass 30: any head ratio, odd or above every tile, and nothing between rows or heads is written") {
  // Call::run requires that the gaps in out stay as they were.
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{40, 5};
    for (const int group : {1, 2, 3, 5, 6, 7, 12, 15, 16, 17, 31, 33, 64, 128}) {
      PagedAttentionCase c = case_for(e, lengths);
      c.num_kv_heads = 2;
      c.num_q_heads = 2 * group;
      c.mtp = 1 + group % 4;
      c.inputs = bench::Inputs::varied;
      Call call(c, lengths);
      call.fill();
      const bench::Verdict verdict = call.verify(call.run(e, 1 + group % 2), call.expected());
      INFO("group " << group << ": " << verdict.reason);
      CHECK(verdict.pass);
    }
  });
}

}  // namespace
}  // namespace tilewave::test
