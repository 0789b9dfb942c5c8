// The parts of a transformer, as the file of a layer graph may name them.
#pragma once

#include "workloads/text/choice.h"

namespace pw {

// Mtp: a module that predicts a further token. Joint: a layer between the blocks of an encoder and of a decoder, which
// stays with the first block after it.
enum class LayerPart { Embedding, Block, Mtp, Head, Loss, Joint };
template <>
inline constexpr Choice<LayerPart> kChoices<LayerPart>[] = {
    {"embedding", LayerPart::Embedding}, {"block", LayerPart::Block}, {"mtp", LayerPart::Mtp},
    {"head", LayerPart::Head},           {"loss", LayerPart::Loss},   {"joint", LayerPart::Joint}};

}  // namespace pw
