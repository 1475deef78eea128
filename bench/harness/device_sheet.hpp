// SPDX-License-Identifier: MIT
// Data sheets of devices, where those of one architecture differ. docs/reference/hardware has the sources.
#pragma once

#include <array>
#include <limits>
#include <string_view>

#include "tilewave/arch/facts.hpp"

namespace tilewave::bench {

struct DeviceSheet {
  std::string_view name;  // name of the page in docs/reference/hardware
  ArchId arch;
  double hbm_bytes_per_second, bf16_flops, fp8_flops;
};

inline constexpr std::array device_sheets{DeviceSheet{"MI300X", ArchId::gfx942, 5.3e12, 1307e12, 2615e12},
                                          DeviceSheet{"MI300A", ArchId::gfx942, 5.3e12, 981e12, 1961e12},
                                          DeviceSheet{"MI308X", ArchId::gfx942, 5.3e12, 295e12, 590e12},
                                          DeviceSheet{"MI325X", ArchId::gfx942, 6.0e12, 1307e12, 2615e12},
                                          DeviceSheet{"MI350X", ArchId::gfx950, 8.0e12, 2307e12, 4614e12},
                                          DeviceSheet{"MI355X", ArchId::gfx950, 8.0e12, 2517e12, 5033e12},
                                          DeviceSheet{"H100", ArchId::sm90, 3.35e12, 989e12, 1979e12},
                                          DeviceSheet{"H200", ArchId::sm90, 4.8e12, 989e12, 1979e12},
                                          DeviceSheet{"H20", ArchId::sm90, 4.0e12, 148e12, 296e12}};

/// Returns the sheet of a device by the name that its driver gives: `AMD Instinct MI300X VF` is an MI300X. NVIDIA's
/// names end with the memory, which distinguishes an H100 with HBM3 from one on PCIe, whose sheet is not here. Null if
/// there is none.
constexpr const DeviceSheet* sheet_of(std::string_view driver_name) {
  constexpr std::string_view amd = "AMD Instinct ", nvidia = "NVIDIA ";
  if (driver_name == "NVIDIA H100 80GB HBM3") driver_name = "NVIDIA H100";
  for (const DeviceSheet& sheet : device_sheets) {
    if (sheet.arch == ArchId::sm90) {
      if (driver_name.starts_with(nvidia) && driver_name.substr(nvidia.size()) == sheet.name) return &sheet;
    } else if (driver_name.starts_with(amd)) {
      const std::string_view model = driver_name.substr(amd.size());
      if (model.starts_with(sheet.name) && (model.size() == sheet.name.size() || model[sheet.name.size()] == ' '))
        return &sheet;
    }
  }
  return nullptr;
}
constexpr const DeviceSheet* sheet_named(std::string_view name) {
  for (const DeviceSheet& sheet : device_sheets)
    if (sheet.name == name) return &sheet;
  return nullptr;
}

/// Returns the facts of an architecture with those of the device in place of its own. A device without a sheet has
/// unknown ones.
constexpr ArchFacts facts_with(ArchId arch, const DeviceSheet* sheet) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  ArchFacts facts = facts_of(arch);
  facts.hbm_bytes_per_second = sheet != nullptr ? sheet->hbm_bytes_per_second : unknown;
  facts.bf16_flops = sheet != nullptr ? sheet->bf16_flops : unknown;
  facts.fp8_flops = sheet != nullptr ? sheet->fp8_flops : unknown;
  return facts;
}

}  // namespace tilewave::bench
