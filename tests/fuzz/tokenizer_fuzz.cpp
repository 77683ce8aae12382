// Any bytes as a SentencePiece model: refused with a DataError, or texts can be encoded and decoded with it.
#include "core/error.h"
#include "data/tokenizer.h"
#include "fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace tessera;
    const fuzz::ScratchFile scratch(data, size, ".model");
    try {
        const data::Tokenizer tokenizer = data::Tokenizer::load(scratch.path());
        fuzz::require(tokenizer.eod_id() >= 0 && tokenizer.eod_id() < tokenizer.vocab_size(),
                      "the end of a document is a token");
        std::vector<std::int32_t> everything;
        for (std::int32_t id = 0; id < tokenizer.vocab_size() && id < 1000; ++id) {
            everything.push_back(id);
            tokenizer.piece(id);
        }
        tokenizer.decode(everything);
        using namespace std::string_view_literals;
        for (const std::string_view text : {""sv, "a"sv, "The cat sat\n  on the  mat."sv,
                                            "\xC3\xA9t\xC3\xA9 \xE2\x85\xA3 \xEF\xBC\xA1 \xF0\x9F\x98\x80"sv,
                                            "\xE2\x96\x81\0 "sv, "\xFF\xFE broken"sv}) {
            try {
                tokenizer.decode(tokenizer.encode(text));
            } catch (const core::DataError&) {
            }
        }
    } catch (const core::DataError&) {
    }
    return 0;
}
