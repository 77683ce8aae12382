#pragma once
#include <string>
#include <string_view>

namespace tessera::data {

/// What SentencePiece itself does not check before it follows the tables in a model file (its ModelProto, serialized):
/// the double-array tries of the normalisation rules (Darts-clone, Yata 2007) must lead nowhere outside of themselves,
/// end, give at most 32 rules for one place of a text, and point at terminated strings. Returns the reason why the
/// model must not be loaded; empty if there is none. Says nothing about what the library checks by itself.
std::string tokenizer_model_fault(std::string_view model);

}  // namespace tessera::data
