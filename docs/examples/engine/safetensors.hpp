// SPDX-License-Identifier: MIT
// Weights in safetensors files, part 5 of the tutorial: mapped into memory and not copied. A file is 8 bytes with the
// length of a header, the header as JSON (name -> dtype, shape, data_offsets), and the tensors' bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace engine {

struct TensorView {
  std::string dtype;  // the file's word: BF16, F16, F32
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// All tensors of the *.safetensors files in a model's folder.
class Safetensors {
 public:
  /// Throws Error with the file: none is there, one is truncated, its header is no JSON or larger than 100 MB, a tensor
  /// lies outside the file or is not as long as its shape says, two files have a tensor of one name.
  explicit Safetensors(const std::filesystem::path& folder);

  /// The tensor of a name and a shape. Throws Error if there is none, or if its shape is another.
  const TensorView& get(const std::string& name, const std::vector<std::int64_t>& shape) const;

 private:
  void add_file(const std::filesystem::path& file);

  std::vector<std::shared_ptr<const std::byte>> files_;  // unmapped by their last owner
  std::map<std::string, TensorView> tensors_;
};

}  // namespace engine
