// SPDX-License-Identifier: MIT
#include "bench/harness/chip_state.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "tilewave/core/hip.hpp"

namespace tilewave::bench {

namespace {

/// The part of NVML that is asked, by its documented C interface: no header or library of it is needed to build.
class Nvml {
 public:
  Nvml() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    int (*init)() = nullptr;
    int (*handle_of)(const char*, void**) = nullptr;
    if (!find("nvmlInit_v2", init) || !find("nvmlDeviceGetHandleByPciBusId_v2", handle_of)) return;
    find("nvmlDeviceGetClockInfo", clock_);
    find("nvmlDeviceGetPowerUsage", average_power_);
    find("nvmlDeviceGetFieldValues", fields_);
    if (init() != 0 || handle_of(pci_bus_id().c_str(), &device_) != 0) device_ = nullptr;
  }

  SensorReading read() const {
    SensorReading reading;
    if (device_ == nullptr) return reading;
    unsigned value = 0;
    constexpr int sm_clock = 1;  // NVML_CLOCK_SM
    if (clock_ != nullptr && clock_(device_, sm_clock, &value) == 0) reading.sm_mhz = value;
    // The power of this moment where it is told, else a second's average.
    Field field{.id = 186};  // NVML_FI_DEV_POWER_INSTANT
    if (fields_ != nullptr && fields_(device_, 1, &field) == 0 && field.status == 0) {
      reading.power_w = 1e-3 * field.value;
    } else if (average_power_ != nullptr && average_power_(device_, &value) == 0) {
      reading.power_w = 1e-3 * value;
    }
    return reading;
  }

 private:
  struct Field {  // nvmlFieldValue_t, whose value is a union of eight bytes: milliwatts lie in the first four
    unsigned id = 0, scope = 0;
    long long timestamp = 0, latency = 0;
    int type = 0, status = 0;
    unsigned value = 0, padding = 0;
  };

  /// Of the current device, which need not be the driver's first.
  static std::string pci_bus_id() {
    int device = 0, domain = 0, bus = 0, slot = 0;
    if (hipGetDevice(&device) != hipSuccess) return "";
    const auto ask = [&](int attribute, int& value) {
      (void)hipDeviceGetAttribute(&value, static_cast<hipDeviceAttribute_t>(attribute), device);
    };
    ask(50, domain);  // cudaDevAttrPciDomainId, cudaDevAttrPciBusId, cudaDevAttrPciDeviceId
    ask(33, bus);
    ask(34, slot);
    char id[32];
    std::snprintf(id, sizeof(id), "%08x:%02x:%02x.0", domain, bus, slot);
    return id;
  }

  template <class Function>
  bool find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }

  void* library_ = nullptr;
  void* device_ = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*average_power_)(void*, unsigned*) = nullptr;
  int (*fields_)(void*, int, Field*) = nullptr;
};

}  // namespace

SensorReading read_sensors() {
  static const Nvml nvml;
  return nvml.read();
}

}  // namespace tilewave::bench
