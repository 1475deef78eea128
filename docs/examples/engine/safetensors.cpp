// SPDX-License-Identifier: MIT
// Part 5 of the tutorial: nothing of a file is believed before it is checked.
#include "safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "fields.hpp"

namespace engine {

namespace {

using nlohmann::json;

std::size_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::size_t> sizes{{"F64", 8},     {"I64", 8}, {"F32", 4}, {"I32", 4},
                                                        {"BF16", 2},    {"F16", 2}, {"U8", 1},  {"I8", 1},
                                                        {"F8_E4M3", 1}, {"BOOL", 1}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

/// One tensor of a header, or an Error that says what is wrong with it.
TensorView read_tensor(const std::string& where, const json& entry, const std::byte* data, std::size_t data_bytes) {
  const auto wrong = [&](const char* why) -> Error { return Error(where + " " + why); };
  const Fields fields(where + ": ", entry);
  const auto offsets = fields.list<std::uint64_t>("data_offsets");
  if (offsets.size() != 2) throw wrong("has not two data_offsets");
  TensorView view;
  view.dtype = fields.get<std::string>("dtype");
  std::size_t count = 1;
  for (const std::uint64_t size : fields.list<std::uint64_t>("shape")) {
    if (size > data_bytes || (size > 0 && count > data_bytes / size)) throw wrong("has a shape larger than its file");
    view.shape.push_back(static_cast<std::int64_t>(size));
    count *= size;
  }
  const std::uint64_t begin = offsets[0], end = offsets[1];
  if (begin > end || end > data_bytes) throw wrong("lies outside the file: it is truncated, or its header is wrong");
  const std::size_t size = element_bytes(view.dtype);
  if (size == 0) throw wrong("has an unknown dtype");
  if (end - begin != count * size) throw wrong("is not as long as its shape says");
  view.data = data + begin, view.bytes = end - begin;
  return view;
}

/// Maps a whole file.
std::shared_ptr<const std::byte> mapped(const std::filesystem::path& file, std::size_t& bytes) {
  const int handle = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  const bool readable = handle >= 0 && fstat(handle, &status) == 0;
  bytes = readable ? static_cast<std::size_t>(status.st_size) : 0;
  void* const data = bytes == 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, handle, 0);
  if (handle >= 0) close(handle);
  if (data == MAP_FAILED)
    throw Error(file.string() + (readable ? ": is empty or cannot be mapped" : ": cannot be read"));
  return {static_cast<const std::byte*>(data), [data, bytes](const std::byte*) { munmap(data, bytes); }};
}

}  // namespace

Safetensors::Safetensors(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  if (files.empty()) throw Error(folder.string() + ": has no *.safetensors file");
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) add_file(file);
}

void Safetensors::add_file(const std::filesystem::path& file) {
  constexpr std::uint64_t most_header = 100'000'000;  // safetensors' own bound
  std::size_t bytes = 0;
  std::uint64_t header_bytes = 0;
  const std::byte* const data = files_.emplace_back(mapped(file, bytes)).get();
  const auto wrong = [&](const std::string& why) { return Error(file.string() + ": " + why); };
  if (bytes < sizeof(header_bytes)) throw wrong("is truncated");
  std::memcpy(&header_bytes, data, sizeof(header_bytes));
  if (header_bytes > most_header || header_bytes > bytes - sizeof(header_bytes))
    throw wrong("its header is longer than the file: truncated, or no safetensors");
  const char* const text = reinterpret_cast<const char*>(data) + sizeof(header_bytes);
  const json header = json::parse(text, text + header_bytes, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) throw wrong("its header is no JSON object");
  const std::size_t first = sizeof(header_bytes) + header_bytes;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    TensorView view = read_tensor(file.string() + ": " + name, entry, data + first, bytes - first);
    if (!tensors_.emplace(name, std::move(view)).second) throw wrong(name + " is there twice");
  }
}

const TensorView& Safetensors::get(const std::string& name, const std::vector<std::int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw Error("the weights lack " + name);
  if (found->second.shape != shape) {
    std::string text = name + " has another shape than config.json says: [";
    for (const std::int64_t extent : found->second.shape) text += std::to_string(extent) + " ";
    text.back() = found->second.shape.empty() ? '[' : ']';
    throw Error(text);
  }
  return found->second;
}

}  // namespace engine
