// Links by name.
#pragma once

#include "workloads/cluster/link.h"

#include <string>
#include <string_view>

namespace pw {

// A named link has the bandwidth in one direction that its makers state, of all links of a device together, and the
// latency that NCCL assumes for one hop of its kind: the constants of its ring algorithm and simple protocol, 3.4 us
// for NVLink, 5.7 us for PCIe and 14 us for a network (src/graph/tuning.cc of NCCL). xGMI has the latency of NVLink,
// because RCCL treats xGMI as NVLink.
struct NamedLink {
    std::string_view name;
    Link link;
};
inline const NamedLink kNamedLinks[] = {
    {"nvlink2", {3'400, 150e9}},   // V100: 6 links of 25 GB/s (NVIDIA V100 architecture, 2017)
    {"nvlink3", {3'400, 300e9}},   // A100: 12 links of 25 GB/s (NVIDIA A100 architecture, 2020)
    {"nvlink4", {3'400, 450e9}},   // H100: 18 links of 25 GB/s (NVIDIA H100 architecture, 2022)
    {"nvlink5", {3'400, 900e9}},   // B200: 18 links of 50 GB/s
    {"pcie4", {5'700, 31e9}},      // 16 lanes; this and the next two: stas00/ml-engineering, network/README.md
    {"pcie5", {5'700, 63e9}},      // 16 lanes
    {"hdr200", {14'000, 25e9}},    // InfiniBand HDR, four lanes: 200 Gbit/s
    {"ndr400", {14'000, 50e9}},    // InfiniBand NDR, four lanes: 400 Gbit/s
    {"xdr800", {14'000, 100e9}},   // InfiniBand XDR, four lanes: 800 Gbit/s
    {"roce100", {14'000, 12.5e9}}  // Ethernet of 100 Gbit/s
};

// Returns the link with this name, or null.
const NamedLink* find_named_link(std::string_view name);
std::string names_of_links();  // "nvlink2, nvlink3, ..."

}  // namespace pw
