// SPDX-License-Identifier: MIT
// The engine that copies boxes of tensors, in the rooms that have it: edges, blocks that copy for each other, stores.
#include <cstdint>
#include <vector>

#include "test/arch/tensor_room.hpp"

namespace tilewave::test {
namespace {

// --- maps ------------------------------------------------------------------------------------------------------------

struct CheckMaps {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      const bench::DeviceBuffer buffer(4096);
      const TensorShape good{buffer.data(), DType::bf16, 100, 5, 3, 208, 1040, 64};
      const auto code = [&](auto change) {
        TensorShape shape = good;
        change(shape);
        typename B::TensorMap map;
        return B::make_tensor_map(shape, map).code;
      };
      constexpr std::int64_t most = std::int64_t{1} << 32, stride_end = std::int64_t{1} << 40;
      CHECK(code([](TensorShape&) {}) == StatusCode::ok);
      CHECK(code([](TensorShape& s) { s.rows = most; }) == StatusCode::ok);
      CHECK(code([](TensorShape& s) { s.box_rows = 256; }) == StatusCode::ok);
      CHECK(code([](TensorShape& s) { s.layer_stride = stride_end - 16; }) == StatusCode::ok);
      CHECK(code([](TensorShape& s) { s.data = static_cast<const char*>(s.data) + 8; }) == StatusCode::misaligned);
      CHECK(code([](TensorShape& s) { s.row_stride = 200; }) == StatusCode::bad_stride);
      CHECK(code([](TensorShape& s) { s.layer_stride = 1048; }) == StatusCode::bad_stride);
      CHECK(code([](TensorShape& s) { s.row_stride = stride_end; }) == StatusCode::bad_stride);
      CHECK(code([](TensorShape& s) { s.layer_stride = -208; }) == StatusCode::bad_stride);
      CHECK(code([](TensorShape& s) { s.columns = 0; }) == StatusCode::bad_extent);
      CHECK(code([](TensorShape& s) { s.rows = most + 1; }) == StatusCode::bad_extent);
      CHECK(code([](TensorShape& s) { s.layers = 0; }) == StatusCode::bad_extent);
      CHECK(code([](TensorShape& s) { s.box_rows = 0; }) == StatusCode::bad_extent);
      CHECK(code([](TensorShape& s) { s.box_rows = 257; }) == StatusCode::bad_extent);
      CHECK(code([](TensorShape& s) { s.box_layers = 3; }) == StatusCode::ok);
      CHECK(code([](TensorShape& s) { s.box_layers = 0; }) == StatusCode::bad_extent);
      CHECK(code([](TensorShape& s) { s.box_layers = 257; }) == StatusCode::bad_extent);
      CHECK(code([](TensorShape& s) { s.straight = true; }) == StatusCode::unsupported_dtype);
      CHECK(code([](TensorShape& s) { s.side_by_side = 2; }) == StatusCode::bad_extent);
    }
  }
};

// --- copies ----------------------------------------------------------------------------------------------------------

/// Each block copies a box and says what came to lie in shared memory, as it lies there.
template <class B>
struct CopyKernel {
  using Room = B;
  static constexpr int block_threads = 64, waves_per_simd = 1;
  struct Args {
    typename B::TensorMap map;
    const int* at;  // [grid, 3]
    Chunk* out;     // [grid, box_units]
    int box_units;
    bool side_by_side;
  };
  struct Shared {
    alignas(1024) Chunk box[256 * 8];
    typename B::Mbarrier full;
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int id = B::block_lane_id(), *const at = args.at + 3 * B::block_id();
    if (id == 0) {
      B::mbarrier_init(&shared.full, 1);
      B::mbarrier_ready();
    }
    B::barrier();
    if (B::wave_id() == 0) {
      B::mbarrier_expect(&shared.full, static_cast<std::uint32_t>(args.box_units) * 16);
      if (id == 0 && args.side_by_side) {
        B::copy_side_by_side(shared.box, args.map, B::load(at + 1), B::load(at + 2), &shared.full);
      } else if (id == 0 && B::block_id() % 2 == 1) {
        B::copy_tensor_once(shared.box, args.map, B::load(at), B::load(at + 1), B::load(at + 2), &shared.full);
      } else if (id == 0) {
        B::copy_tensor(shared.box, args.map, B::load(at), B::load(at + 1), B::load(at + 2), &shared.full);
      }
    }
    B::mbarrier_wait(&shared.full, 0);
    for (int i = id; i < args.box_units; i += block_threads) {
      B::store(args.out + B::block_id() * args.box_units + i, B::load(shared.box + i));
    }
  }
};

struct CheckCopies {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      // 200 bytes in a row, 37 rows in a layer, gaps behind both.
      const TensorShape shapes[] = {{nullptr, DType::bf16, 100, 37, 3, 208, 8000, 64},
                                    {nullptr, DType::f16, 100, 37, 3, 224, 8288, 8},
                                    {nullptr, DType::f32, 50, 37, 3, 208, 7696, 256},
                                    {nullptr, B::facts.fp8, 200, 37, 3, 208, 8000, 40},
                                    {nullptr, DType::bf16, 100, 37, 3, 208, 8000, 8, 2},
                                    {nullptr, DType::i8, 128, 37, 3, 128, 4736, 13, 5},  // more layers than there are
                                    {nullptr, DType::i8, 300, 37, 3, 304, 11248, 8, 2, true}};
      for (const TensorShape& shape : shapes) {
        CAPTURE(std::string(name_of(shape.type)), shape.box_rows, shape.box_layers);
        check<B>(shape);
      }
      // Rows of one to three boxes, five groups of eight in a layer.
      for (TensorShape shape : {TensorShape{nullptr, DType::bf16, 128, 40, 3, 272, 11008, 16},
                                TensorShape{nullptr, DType::f16, 192, 40, 3, 400, 16000, 40},
                                TensorShape{nullptr, DType::i8, 128, 40, 3, 128, 5120, 8}}) {
        CAPTURE(std::string(name_of(shape.type)), shape.box_rows);
        shape.side_by_side = static_cast<int>(shape.columns) * size_of(shape.type) / 128;
        check<B>(shape);
      }
    }
  }
  template <class B>
  static void check(TensorShape shape) {
    using K = CopyKernel<B>;
    const int elements = shape.box_bytes() / size_of(shape.type), units = rows_of_box(shape) * shape.box_bytes() / 16;
    const int unit = 16 / size_of(shape.type);
    std::vector<int> at = {
        0, 0, 0, elements, 8, 1, elements, 30, 2, elements + unit, 36, 2, unit, 1, 0, elements * 2, 0, 0, 0, 37, 0,
        0, 0, 3, 3 * unit, 9, 1, 0,        20, 0, 24 * unit,       0,  2, 0,    5, 1};
    const int blocks = static_cast<int>(at.size()) / 3;
    for (std::size_t i = 0; i < at.size() && shape.side_by_side > 0; ++i)  // whole groups of rows
      at[i] = i % 3 == 0 ? 0 : i % 3 == 1 ? at[i] / 8 * 8 : at[i];
    const Bytes tensor = numbered_bytes(3 * static_cast<std::size_t>(shape.layer_stride));
    const Device<unsigned char> in(tensor);
    const Device<int> places(at);
    Device<Chunk> out(std::vector<Chunk>(blocks * units));
    shape.data = in.data();
    typename K::Args args{{}, places.data(), out.data(), units, shape.side_by_side > 0};
    REQUIRE(B::make_tensor_map(shape, args.map).ok());
    launch_kernel<K>(blocks, 1, args);
    const Bytes found = bytes_of(out.values());
    Bytes expected;
    for (int b = 0; b < blocks; ++b) append_box(expected, shape, tensor, at[3 * b], at[3 * b + 1], at[3 * b + 2]);
    CHECK((found == expected));
  }
};

// --- copies for others -----------------------------------------------------------------------------------------------

/// The blocks of a cluster fetch eight rows each for all of them, then eight rows for the next one only.
template <class B, int cluster_blocks>
struct MulticastKernel {
  using Room = B;
  static constexpr int blocks = cluster_blocks, block_threads = 64, waves_per_simd = 1;
  static constexpr int units = 64 * (blocks + 1);
  struct Args {
    typename B::TensorMap map;  // rows: eight for each block, and eight more
    Chunk* out;                 // [grid, units]
  };
  struct Shared {
    alignas(1024) Chunk box[units];
    typename B::Mbarrier full[2];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int id = B::block_lane_id(), rank = B::cluster_rank(), row = 16 * B::block_id();
    if (id == 0) {
      B::mbarrier_init(&shared.full[0], 1);
      B::mbarrier_init(&shared.full[1], 1);
      B::mbarrier_ready();
    }
    B::cluster_arrive();
    B::cluster_wait();
    if (B::wave_id() == 0) {
      B::mbarrier_expect(&shared.full[0], blocks * 1024);
      if (id == 0) {
        B::copy_tensor(shared.box + 64 * rank, args.map, 0, row, 0, &shared.full[0], (1u << blocks) - 1);
        B::copy_tensor(shared.box + 64 * blocks, args.map, 0, row + 8, 0, &shared.full[1], 1u << (rank + 1) % blocks);
      }
      B::mbarrier_expect(&shared.full[1], 1024);
    }
    B::mbarrier_wait(&shared.full[0], 0);
    B::mbarrier_wait(&shared.full[1], 0);
    for (int i = id; i < units; i += block_threads) {
      B::store(args.out + B::block_id() * units + i, B::load(shared.box + i));
    }
    B::cluster_arrive();  // no block ends before its copies into others have landed
    B::cluster_wait();
  }
};

struct CheckMulticast {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      check<MulticastKernel<B, 2>>();
      check<MulticastKernel<B, 4>>();
    }
  }
  template <class K>
  static void check() {
    using B = typename K::Room;
    constexpr int grid = 3 * K::blocks;
    const Bytes tensor = numbered_bytes(grid * 16 * 128);
    const Device<unsigned char> in(tensor);
    Device<Chunk> out(std::vector<Chunk>(grid * K::units));
    const TensorShape shape{in.data(), B::facts.fp8, 128, grid * 16, 1, 128, grid * 16 * 128, 8};
    typename K::Args args{{}, out.data()};
    REQUIRE(B::make_tensor_map(shape, args.map).ok());
    launch_kernel<K>(grid, K::blocks, args);
    Bytes expected;
    for (int b = 0; b < grid; ++b) {
      const int first = b / K::blocks * K::blocks;
      for (int i = 0; i < K::blocks; ++i) append_box(expected, shape, tensor, 0, 16 * (first + i), 0);
      append_box(expected, shape, tensor, 0, 16 * (first + (b - first + K::blocks - 1) % K::blocks) + 8, 0);
    }
    CAPTURE(K::blocks);
    CHECK((bytes_of(out.values()) == expected));
  }
};

// --- stores ----------------------------------------------------------------------------------------------------------

/// Each block stores three boxes of its layer, the third from where the first was.
template <class B>
struct StoreKernel {
  using Room = B;
  static constexpr int block_threads = 64, waves_per_simd = 1, box_rows = 24, units = 8 * box_rows;
  struct Args {
    typename B::TensorMap map;
    const Chunk* in;  // [grid, 3, units], as they shall lie in shared memory
  };
  struct Shared {
    alignas(1024) Chunk box[2][units];
  };

  TILEWAVE_DEVICE static void fill(Chunk* box, const Chunk* from) {
    for (int i = B::block_lane_id(); i < units; i += block_threads) B::store(box + i, B::load(from + i));
    B::shared_written();
    B::barrier();
  }

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int layer = B::block_id();
    const Chunk* const in = args.in + 3 * layer * units;
    const bool storing = B::block_lane_id() == 0;
    fill(shared.box[0], in);
    if (storing) {
      B::store_tensor(args.map, 0, 0, layer, shared.box[0]);
      B::stores_end();
    }
    fill(shared.box[1], in + units);
    if (storing) {
      B::store_tensor(args.map, 64, 8, layer, shared.box[1]);
      B::stores_end();
      B::template stores_read<1>();
    }
    B::barrier();
    fill(shared.box[0], in + 2 * units);
    if (storing) {
      B::store_tensor(args.map, 0, 32, layer, shared.box[0]);
      B::stores_end();
      B::template stores_read<0>();
    }
  }
};

struct CheckStores {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      using K = StoreKernel<B>;
      constexpr int grid = 4;
      // One layer more than is written, as is one column of units and what lies between rows.
      TensorShape shape{nullptr, DType::bf16, 104, 37, grid, 224, 9000 / 16 * 16, K::box_rows};
      const Bytes boxes = numbered_bytes(grid * 3 * K::units * 16);
      Bytes expected((grid + 1) * static_cast<std::size_t>(shape.layer_stride), 0xa5);
      const Device<unsigned char> in(boxes);
      Device<unsigned char> out(expected);
      shape.data = out.data();
      typename K::Args args{{}, static_cast<const Chunk*>(static_cast<const void*>(in.data()))};
      REQUIRE(B::make_tensor_map(shape, args.map).ok());
      launch_kernel<K>(grid, 1, args);
      constexpr int at[3][2] = {{0, 0}, {64, 8}, {0, 32}};
      for (int i = 0; i < 3 * grid; ++i) {
        for (int r = 0; r < K::box_rows; ++r) {
          for (int byte = 0; byte < 128; ++byte) {
            const int row = at[i % 3][1] + r, column = 2 * at[i % 3][0] + byte;
            if (row >= shape.rows || column >= 2 * shape.columns) continue;
            expected[i / 3 * shape.layer_stride + row * shape.row_stride + column] =
                boxes[i * K::units * 16 + swizzled(r, byte)];
          }
        }
      }
      CHECK((out.values() == expected));
    }
  }
};

}  // namespace

TEST_CASE("tensor maps that the engine cannot read are named") { AllRooms::each(CheckMaps{}); }
TEST_CASE("a box lands swizzled, with zeros outside the tensor") { AllRooms::each(CheckCopies{}); }
TEST_CASE("blocks of a cluster copy boxes for each other") { AllRooms::each(CheckMulticast{}); }
TEST_CASE("stored boxes end where the tensor does") { AllRooms::each(CheckStores{}); }

}  // namespace tilewave::test
