#include "train/micro_batch.h"

#include <algorithm>

#include "core/rounding.h"

namespace tessera::train {
namespace {

using core::DType;
using core::MemoryCategory;
using core::Tensor;

/// The token map on the host, before it goes to the device.
struct HostMap {
    std::vector<std::int64_t> sample;
    std::vector<std::int32_t> offset;
    std::vector<std::int32_t> position;
    std::vector<std::int32_t> cu_seqlens{0};
    std::int64_t max_seqlen = 0;
    std::int64_t sum_squared = 0;

    void close_block() {
        const auto end = static_cast<std::int32_t>(sample.size());
        const std::int64_t length = end - cu_seqlens.back();
        if (length == 0) return;
        cu_seqlens.push_back(end);
        max_seqlen = std::max(max_seqlen, length);
        sum_squared += length * length;
    }
};

template <typename T>
Tensor upload(kernels::Backend& backend, const std::vector<T>& values) {
    Tensor tensor = Tensor::empty(backend.pool(), {static_cast<std::int64_t>(values.size())}, core::DTypeOf<T>::value,
                                  MemoryCategory::workspace);
    tensor.copy_from_host(values.data());
    return tensor;
}

kernels::TokenMap upload_map(kernels::Backend& backend, const HostMap& host, std::int64_t seq_length) {
    return {.sample = upload(backend, host.sample),
            .offset = upload(backend, host.offset),
            .position = upload(backend, host.position),
            .cu_seqlens = upload(backend, host.cu_seqlens),
            .max_seqlen = host.max_seqlen,
            .seq_length = seq_length,
            .sum_squared_seqlens = host.sum_squared};
}

void append_sample(HostMap& map, const data::Batch& batch, std::int64_t index, DocumentMask mask) {
    const auto row = static_cast<std::size_t>(index);
    const std::vector<std::int32_t>& borders = batch.document_borders[row];
    auto border = borders.begin();
    std::int32_t document_begin = 0;
    for (std::int32_t offset = 0; offset < batch.seq_length; ++offset) {
        if (mask == DocumentMask::on && border != borders.end() && *border == offset) {
            map.close_block();
            document_begin = offset;
            ++border;
        }
        map.sample.push_back(batch.sample_index[row]);
        map.offset.push_back(offset);
        map.position.push_back(offset - document_begin);
    }
    map.close_block();
}

}  // namespace

MicroBatch make_micro_batch(kernels::Backend& backend, const data::Batch& batch, std::int64_t first, std::int64_t count,
                            DocumentMask mask) {
    const std::int64_t real = count * batch.seq_length;
    const auto padded = static_cast<std::size_t>(core::round_up(real, kTokenMultiple));
    HostMap map;
    for (std::int64_t index = first; index < first + count; ++index) append_sample(map, batch, index, mask);
    map.sample.resize(padded, -1);
    map.offset.resize(padded, 0);
    map.position.resize(padded, 0);
    const auto begin = static_cast<std::ptrdiff_t>(first * batch.seq_length);
    std::vector<std::int32_t> tokens(batch.tokens.begin() + begin, batch.tokens.begin() + begin + real);
    std::vector<std::int32_t> targets(batch.targets.begin() + begin, batch.targets.begin() + begin + real);
    tokens.resize(padded, 0);
    targets.resize(padded, -1);
    return {.tokens = upload(backend, tokens),
            .targets = upload(backend, targets),
            .map = upload_map(backend, map, batch.seq_length)};
}

MicroBatch make_sequence(kernels::Backend& backend, const std::vector<std::int32_t>& tokens, std::int64_t past,
                         std::int64_t seq_length) {
    HostMap map;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto position = static_cast<std::int32_t>(past + static_cast<std::int64_t>(i));
        map.sample.push_back(0);
        map.offset.push_back(position);
        map.position.push_back(position);
    }
    map.close_block();
    return {.tokens = upload(backend, tokens), .targets = {}, .map = upload_map(backend, map, seq_length)};
}

}  // namespace tessera::train
