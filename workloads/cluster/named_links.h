// Links by name.
#pragma once

#include "workloads/cluster/link.h"

#include <string>
#include <string_view>

namespace pw {

// A named link has the bandwidth in one direction that its makers state, of all links of a device together, and the
// latency that NCCL assumes for one hop of its kind: the constants of its ring algorithm and simple protocol, 3.4 us
// for NVLink, 5.7 us for PCIe and 14 us for a network (src/graph/tuning.cc of NCCL). xGMI has the latency of NVLink,
// because RCCL treats xGMI as NVLink, and so have NeuronLink and the links of Gaudi and Ascend, of which no latency was
// found. Figures of both directions together are halved. workloads/cluster/device_kinds.yaml says which documents the
// names Google, Neuron, Habana, ml-engineering and msmodeling stand for.
struct NamedLink {
    std::string_view name;
    Link link;
};
inline const NamedLink kNamedLinks[] = {
    {"nvlink2", {3'400, 150e9}},    // V100: 6 links of 25 GB/s (NVIDIA V100 architecture, 2017)
    {"nvlink3", {3'400, 300e9}},    // A100: 12 links of 25 GB/s (NVIDIA A100 architecture, 2020)
    {"nvlink4", {3'400, 450e9}},    // H100: 18 links of 25 GB/s (NVIDIA H100 architecture, 2022)
    {"nvlink5", {3'400, 900e9}},    // B200: 18 links of 50 GB/s
    {"pcie4", {5'700, 31e9}},       // 16 lanes; this and the next two: stas00/ml-engineering, network/README.md
    {"pcie5", {5'700, 63e9}},       // 16 lanes
    {"hdr200", {14'000, 25e9}},     // InfiniBand HDR, four lanes: 200 Gbit/s
    {"ndr400", {14'000, 50e9}},     // InfiniBand NDR, four lanes: 400 Gbit/s
    {"xdr800", {14'000, 100e9}},    // InfiniBand XDR, four lanes: 800 Gbit/s
    {"roce100", {14'000, 12.5e9}},  // Ethernet of 100 Gbit/s
    // One hop of ICI takes about 1 us (jax-ml/scaling-book@0819a7d, tpus.md); a link has 1/4 of this in the 2D torus of
    // v5e and v6e, 1/6 in the 3D torus of v5p and v7.
    {"ici-v5e", {1'000, 200e9}},      // Google v5e: 400 GB/s both ways
    {"ici-v5p", {1'000, 600e9}},      // Google v5p: 1200 GB/s both ways
    {"ici-v6e", {1'000, 400e9}},      // Google v6e: 800 GB/s both ways
    {"ici-v7", {1'000, 600e9}},       // Google tpu7x: 1200 GB/s both ways
    {"neuronlink2", {3'400, 192e9}},  // Trainium, 384 GB/s both ways (Neuron trainium2)
    {"neuronlink3", {3'400, 512e9}},  // Trainium2, to four neighbours in its host (ml-engineering, network/README.md)
    {"gaudi2", {3'400, 262.5e9}},     // 21 ports of 100 Gbit/s (Habana)
    {"gaudi3", {3'400, 525e9}},       // 21 ports of 200 Gbit/s (Habana)
    {"hccs-910b", {3'400, 196e9}},    // mesh of eight, seven links of 28 GB/s (msmodeling A2_INTERCONNECT)
    {"ub-910c", {3'400, 392e9}}       // unified bus of 384 (arXiv 2506.12708)
};

// Returns the link with this name, or null.
const NamedLink* find_named_link(std::string_view name);
std::string names_of_links();  // "nvlink2, nvlink3, ..."

}  // namespace pw
