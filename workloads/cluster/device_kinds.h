// Kinds of devices by name: what a device computes, stores and sends, each figure with its source.
#pragma once

#include "workloads/cluster/link.h"
#include "workloads/models/precision.h"
#include "workloads/units.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// FLOP/s by precision: fp32, tf32, fp16, bf16, fp8, fp4.
using RatesByPrecision = std::map<std::string, double, std::less<>>;

struct DeviceKindFacts {
    std::string name;
    RatesByPrecision peak;        // of dense products, as the vendor states it
    RatesByPrecision best;        // of the fastest product that was measured, none if no measurement was found
    Bytes memory = 0;             // available to a program, or as sold
    double memory_bandwidth = 0;  // B/s
    double power = 0;             // watts that the device may take, 0: not known
    Link link;                    // between two devices of a host
    std::string products;  // the kind whose table of products (workloads/costs/products.yaml) holds, empty: none does
    std::string source;
};

// Returns the name of a precision's rate. Numbers with scales of blocks have the rate of numbers of their width.
std::string_view rate_name(Precision precision);

// The rate at which a kind of device computes products.
struct ProductRate {
    double flops = 0;
    bool is_measured = false;  // else it is the vendor's peak, which no product reaches
};
// Returns the rate of the fastest measured product, else the peak, or nothing if the device has no such arithmetic.
std::optional<ProductRate> product_rate(const DeviceKindFacts& kind, Precision precision);

// Returns the kinds of the table of this build (workloads/cluster/device_kinds.yaml).
const std::vector<DeviceKindFacts>& device_kinds();
// Returns the kinds of this build, and the kinds of the file if `file` is not empty. A kind of the file replaces a kind
// of the same name. Throws Error (BadInput) with the mistakes of the file.
std::vector<DeviceKindFacts> device_kinds(const std::string& file);
const DeviceKindFacts* find_device_kind(const std::vector<DeviceKindFacts>& kinds, std::string_view name);

}  // namespace pw
