// Causal attention in double precision, with dropout from its definition.
#pragma once
#include "support/tensor_support.h"

namespace tessera::kernels {

struct AttentionReference {
    HeadLayout heads;
    double scale = 1;
    Dropout dropout;
    std::int64_t seq_length = 0;
    std::int64_t tokens = 0;
    std::vector<std::int32_t> borders;
    std::vector<std::int64_t> sample;
    std::vector<std::int32_t> offset;

    AttentionReference(const HeadLayout& layout, double score_scale, const Dropout& drop, const TokenMap& map)
        : heads(layout),
          scale(score_scale),
          dropout(drop),
          seq_length(map.seq_length),
          tokens(map.sample.numel()),
          borders(map.cu_seqlens.data<std::int32_t>(), map.cu_seqlens.data<std::int32_t>() + map.cu_seqlens.numel()),
          sample(map.sample.data<std::int64_t>(), map.sample.data<std::int64_t>() + tokens),
          offset(map.offset.data<std::int32_t>(), map.offset.data<std::int32_t>() + tokens) {}

    /// The factor of query token `query` and key token `key` under local head `head`.
    double factor(std::int64_t head, std::int64_t query, std::int64_t key) const {
        const std::int64_t pitch = (seq_length + 3) / 4 * 4;
        const auto q = static_cast<std::size_t>(query);
        return support::dropout_factor(dropout, sample[q], offset[q],
                                       (dropout.feature_begin + head) * pitch + offset[static_cast<std::size_t>(key)]);
    }

    /// out [T, N·K] and lse [N, T] of the packed qkv.
    void forward(const std::vector<double>& qkv, std::vector<double>& out, std::vector<double>& lse) const {
        const std::int64_t dim = heads.head_dim;
        out.assign(static_cast<std::size_t>(tokens * heads.num_heads * dim), 0.0);
        lse.assign(static_cast<std::size_t>(heads.num_heads * tokens), 0.0);
        for (std::size_t block = 0; block + 1 < borders.size(); ++block) {
            for (std::int64_t head = 0; head < heads.num_heads; ++head) {
                for (std::int64_t query = borders[block]; query < borders[block + 1]; ++query) {
                    const std::vector<double> p = probabilities(qkv, borders[block], head, query, lse);
                    for (std::int64_t key = borders[block]; key <= query; ++key) {
                        const double weight =
                                p[static_cast<std::size_t>(key - borders[block])] * factor(head, query, key);
                        const double* value = qkv.data() + value_column(key, head);
                        double* row = out.data() + (query * heads.num_heads + head) * dim;
                        for (std::int64_t i = 0; i < dim; ++i) row[i] += weight * value[i];
                    }
                }
            }
        }
    }

    double objective(const std::vector<double>& qkv, const std::vector<double>& dout) const {
        std::vector<double> out;
        std::vector<double> lse;
        forward(qkv, out, lse);
        double sum = 0;
        for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
        return sum;
    }

private:
    std::int64_t group_of(std::int64_t head) const { return head / (heads.num_heads / heads.num_kv_heads); }
    std::int64_t key_column(std::int64_t token, std::int64_t head) const {
        return token * heads.packed_width() + (heads.num_heads + group_of(head)) * heads.head_dim;
    }
    std::int64_t value_column(std::int64_t token, std::int64_t head) const {
        return key_column(token, head) + heads.num_kv_heads * heads.head_dim;
    }
    std::vector<double> probabilities(const std::vector<double>& qkv, std::int64_t begin, std::int64_t head,
                                      std::int64_t query, std::vector<double>& lse) const {
        std::vector<double> p;
        double largest = -std::numeric_limits<double>::infinity();
        for (std::int64_t key = begin; key <= query; ++key) {
            const double* q = qkv.data() + query * heads.packed_width() + head * heads.head_dim;
            const double* k = qkv.data() + key_column(key, head);
            double score = 0;
            for (std::int64_t i = 0; i < heads.head_dim; ++i) score += q[i] * k[i] * scale;
            p.push_back(score);
            largest = std::max(largest, score);
        }
        double total = 0;
        for (double& value : p) total += value = std::exp(value - largest);
        for (double& value : p) value /= total;
        lse[static_cast<std::size_t>(head * tokens + query)] = largest + std::log(total);
        return p;
    }
};

}  // namespace tessera::kernels
