// The parts of a transformer, as the file of a layer graph may name them.
#pragma once

#include "workloads/text/choice.h"

namespace pw {

enum class LayerPart { Embedding, Block, Head, Loss };
template <>
inline constexpr Choice<LayerPart> kChoices<LayerPart>[] = {{"embedding", LayerPart::Embedding},
                                                            {"block", LayerPart::Block},
                                                            {"head", LayerPart::Head},
                                                            {"loss", LayerPart::Loss}};

}  // namespace pw
