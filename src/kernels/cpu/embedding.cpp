#include "kernels/embedding.h"

#include "kernels/cpu/embedding_rows.h"
#include "kernels/cpu/families.h"

namespace tessera::kernels::cpu {
namespace {

using core::Tensor;

/// Every id and position inside its table, before any row is touched.
void check_indices(const Tensor& tokens, const TokenMap& map, std::int64_t vocab, std::int64_t positions) {
    const std::int32_t* ids = tokens.data<std::int32_t>();
    const std::int64_t* sample = map.sample.data<std::int64_t>();
    const std::int32_t* offset = map.offset.data<std::int32_t>();
    const std::int32_t* position = map.position.data<std::int32_t>();
    for (std::int64_t token = 0; token < tokens.numel(); ++token) {
        if (sample[token] < 0) continue;
        if (ids[token] < 0 || ids[token] >= vocab) {
            core::raise<core::DataError>("token id {} of sample {} at offset {} is outside the vocabulary of {}",
                                         ids[token], sample[token], offset[token], vocab);
        }
        if (positions > 0 && (position[token] < 0 || position[token] >= positions)) {
            core::raise<core::DataError>("position {} of sample {} is outside the {} learned positions",
                                         position[token], sample[token], positions);
        }
    }
}

class Embedding final : public EmbeddingKernels {
public:
    void embedding_forward(const EmbeddingForwardArgs& args) override {
        check_indices(args.tokens, args.map, args.word.size(0), args.positions ? args.positions->size(0) : 0);
        EmbeddingRows rows = rows_of(args.tokens, args.map, args.dropout);
        rows.dtype = args.word.dtype();
        rows.hidden = args.word.size(1);
        rows.word = args.word.bytes();
        rows.positions = args.positions ? args.positions->bytes() : nullptr;
        rows.y = args.y.bytes();
        embedding_rows_forward(rows);
    }

    void embedding_backward(const EmbeddingBackwardArgs& args) override {
        EmbeddingRows rows = rows_of(args.tokens, args.map, args.dropout);
        rows.dtype = args.dy.dtype();
        rows.hidden = args.dy.size(1);
        rows.dy = args.dy.bytes();
        rows.dword = args.dword.data<float>();
        rows.dpositions = args.dpositions ? args.dpositions->data<float>() : nullptr;
        embedding_rows_backward(rows);
    }

private:
    static EmbeddingRows rows_of(const Tensor& tokens, const TokenMap& map, const Dropout& dropout) {
        EmbeddingRows rows;
        rows.tokens = tokens.numel();
        rows.ids = tokens.data<std::int32_t>();
        rows.sample = map.sample.data<std::int64_t>();
        rows.offset = map.offset.data<std::int32_t>();
        rows.position = map.position.data<std::int32_t>();
        rows.dropout = dropout;
        return rows;
    }
};

}  // namespace

std::unique_ptr<EmbeddingKernels> make_embedding() {
    return std::make_unique<Embedding>();
}

}  // namespace tessera::kernels::cpu
